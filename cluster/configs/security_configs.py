"""Broker configs of TLS and SASL that this broker reads, with Kafka 3.9's defaults.

With the prefix `listener.name.<listener>.` they are for one listener, with `<mechanism>.` behind it for one mechanism.
"""

from __future__ import annotations

from odradek.cluster.configs.configtypes import (
    BOOLEAN,
    CLASS,
    DOUBLE,
    INT,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    PASSWORD,
    PER_BROKER,
    SHORT,
    STRING,
    ConfigKey,
    at_least,
    one_of,
)

# fmt: off
SECURITY_CONFIGS = (
    ConfigKey(
        "connection.failed.authentication.delay.ms", INT, "100", LOW,
        "Time after which a client that failed to authenticate gets its answer and is closed.",
        check=at_least(0),
    ),
    ConfigKey(
        "connections.max.reauth.ms", LONG, "0", MEDIUM,
        "Longest time until a client must authenticate again (KIP-368). 0: never.",
    ),
    ConfigKey(
        "sasl.server.max.receive.size", INT, "524288", MEDIUM,
        "Largest frame in bytes of a client that is not authenticated yet.",
    ),
    ConfigKey(
        "ssl.client.auth", STRING, "none", MEDIUM,
        "Whether clients must have a certificate: required, requested or none.",
        check=one_of("required", "requested", "none"), mode=PER_BROKER,
    ),
    ConfigKey(
        "ssl.principal.mapping.rules", STRING, "DEFAULT", LOW,
        "Rules that make a principal of the name in a client's certificate.",
    ),
    ConfigKey(
        "ssl.allow.dn.changes", BOOLEAN, "false", LOW,
        "Whether a reloaded certificate may have another distinguished name.",
    ),
    ConfigKey(
        "ssl.allow.san.changes", BOOLEAN, "false", LOW,
        "Whether a reloaded certificate may lack alternative names of the one before.",
    ),
    ConfigKey(
        "ssl.protocol", STRING, "TLSv1.3", MEDIUM,
        "Newest version of TLS that this broker uses as a client.",
        mode=PER_BROKER,
    ),
    ConfigKey(
        "ssl.enabled.protocols", LIST, "TLSv1.2,TLSv1.3", MEDIUM,
        "Versions of TLS: TLSv1.2 and TLSv1.3.",
        mode=PER_BROKER,
    ),
    ConfigKey(
        "ssl.keystore.type", STRING, "JKS", MEDIUM,
        "Format of the key store: PEM or PKCS12. JKS is refused with the command that converts it.",
        mode=PER_BROKER,
    ),
    ConfigKey(
        "ssl.keystore.location", STRING, None, MEDIUM,
        "File with the certificate chain and the private key; it is loaded again when it changes.",
        mode=PER_BROKER,
    ),
    ConfigKey(
        "ssl.keystore.password", PASSWORD, None, MEDIUM,
        "Password of the key store, of type PKCS12.",
        mode=PER_BROKER,
    ),
    ConfigKey(
        "ssl.key.password", PASSWORD, None, MEDIUM,
        "Password of the private key.",
        mode=PER_BROKER,
    ),
    ConfigKey(
        "ssl.keystore.key", PASSWORD, None, MEDIUM,
        "The private key as PEM, in place of a file.",
        mode=PER_BROKER,
    ),
    ConfigKey(
        "ssl.keystore.certificate.chain", PASSWORD, None, MEDIUM,
        "The certificate chain as PEM, in place of a file.",
        mode=PER_BROKER,
    ),
    ConfigKey(
        "ssl.truststore.type", STRING, "JKS", MEDIUM,
        "Format of the trust store: PEM or PKCS12. JKS is refused with the command that converts it.",
        mode=PER_BROKER,
    ),
    ConfigKey(
        "ssl.truststore.location", STRING, None, MEDIUM,
        "File with the certificates that are trusted; it is loaded again when it changes.",
        mode=PER_BROKER,
    ),
    ConfigKey(
        "ssl.truststore.password", PASSWORD, None, MEDIUM,
        "Password of the trust store, of type PKCS12.",
        mode=PER_BROKER,
    ),
    ConfigKey(
        "ssl.truststore.certificates", PASSWORD, None, MEDIUM,
        "The trusted certificates as PEM, in place of a file.",
        mode=PER_BROKER,
    ),
    ConfigKey(
        "ssl.endpoint.identification.algorithm", STRING, "https", LOW,
        "https: this broker compares a server's certificate with its name; empty: it does not.",
        mode=PER_BROKER,
    ),
    ConfigKey(
        "ssl.cipher.suites", LIST, "", MEDIUM,
        "Cipher suites by their names in Java; empty: OpenSSL's defaults.",
        mode=PER_BROKER,
    ),
    ConfigKey(
        "sasl.enabled.mechanisms", LIST, "GSSAPI", MEDIUM,
        "Mechanisms of SASL that clients may use: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER.",
        mode=PER_BROKER,
    ),
    ConfigKey(
        "sasl.mechanism.inter.broker.protocol", STRING, "GSSAPI", MEDIUM,
        "Mechanism by which the broker authenticates to other brokers on a SASL listener: PLAIN, SCRAM-SHA-256, "
        "SCRAM-SHA-512, OAUTHBEARER. User and password, or clientId and clientSecret, are in "
        "listener.name.<listener>.<mechanism>.sasl.jaas.config.",
        mode=PER_BROKER,
    ),
    ConfigKey(
        "sasl.server.callback.handler.class", CLASS, None, MEDIUM,
        "Kafka's class that validates bearer tokens; the one for unsecured tokens must be named.",
    ),
    ConfigKey(
        "sasl.login.callback.handler.class", CLASS, None, MEDIUM,
        "Kafka's class that gets this broker's own bearer token: the one for unsecured tokens is the default, the one "
        "that fetches a token where sasl.oauthbearer.token.endpoint.url is set.",
    ),
    ConfigKey(
        "sasl.login.refresh.window.factor", DOUBLE, "0.8", MEDIUM,
        "Part of its lifetime after which this broker's own bearer token is fetched again; 0.5 to 1.",
        mode=PER_BROKER,
    ),
    ConfigKey(
        "sasl.login.refresh.window.jitter", DOUBLE, "0.05", MEDIUM,
        "Largest random part that is added to sasl.login.refresh.window.factor; up to 0.25.",
        mode=PER_BROKER,
    ),
    ConfigKey(
        "sasl.login.refresh.min.period.seconds", SHORT, "60", MEDIUM,
        "Shortest time between two fetches of this broker's own bearer token, if it lives long enough.",
        mode=PER_BROKER,
    ),
    ConfigKey(
        "sasl.login.refresh.buffer.seconds", SHORT, "300", MEDIUM,
        "Time before its end when this broker's own bearer token is fetched again at the latest.",
        mode=PER_BROKER,
    ),
    ConfigKey(
        "sasl.login.connect.timeout.ms", INT, None, LOW,
        "Longest wait for a connection to sasl.oauthbearer.token.endpoint.url; unset: 10 s.",
    ),
    ConfigKey(
        "sasl.login.read.timeout.ms", INT, None, LOW,
        "Longest wait for a part of the answer of sasl.oauthbearer.token.endpoint.url; unset: 10 s.",
    ),
    ConfigKey(
        "sasl.login.retry.backoff.max.ms", LONG, "10000", LOW,
        "Longest pause after failed fetches of a bearer token.",
    ),
    ConfigKey(
        "sasl.login.retry.backoff.ms", LONG, "100", LOW,
        "First pause after a failed fetch of a bearer token.",
    ),
    ConfigKey(
        "sasl.jaas.config", PASSWORD, None, MEDIUM,
        "Login module and its options, by listener and mechanism; users and passwords of PLAIN.",
        mode=PER_BROKER,
    ),
    ConfigKey(
        "sasl.oauthbearer.scope.claim.name", STRING, "scope", LOW,
        "Claim with the scope of a bearer token.",
    ),
    ConfigKey(
        "sasl.oauthbearer.sub.claim.name", STRING, "sub", LOW,
        "Claim with the principal's name in a bearer token.",
    ),
    ConfigKey(
        "sasl.oauthbearer.token.endpoint.url", STRING, None, MEDIUM,
        "URL where this broker gets its own bearer token by OAuth's client credentials: https: or http:; or file:.",
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.url", STRING, None, MEDIUM,
        "URL of the keys that sign bearer tokens: file:, https: or http:.",
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms", LONG, "3600000", LOW,
        "Time after which the keys are read again.",
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", LONG, "100", LOW,
        "First pause after a failed read of the keys.",
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", LONG, "10000", LOW,
        "Longest pause after failed reads of the keys.",
    ),
    ConfigKey(
        "sasl.oauthbearer.clock.skew.seconds", INT, "30", LOW,
        "Difference between the clocks of the broker and the token's issuer that is tolerated.",
    ),
    ConfigKey(
        "sasl.oauthbearer.expected.audience", LIST, None, LOW,
        "Audiences of which a bearer token must have one.",
    ),
    ConfigKey(
        "sasl.oauthbearer.expected.issuer", STRING, None, LOW,
        "Issuer that a bearer token must have.",
    ),
)
# fmt: on
