import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.CallbackHandler;
import javax.security.auth.callback.NameCallback;
import javax.security.auth.callback.PasswordCallback;
import javax.security.auth.login.AppConfigurationEntry;
import javax.security.sasl.SaslClient;
import javax.security.sasl.SaslServer;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.security.JaasContext;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.authenticator.CredentialCache;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.internals.OAuthBearerSaslServer;
import org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler;
import org.apache.kafka.common.security.plain.internals.PlainSaslServer;
import org.apache.kafka.common.security.plain.internals.PlainServerCallbackHandler;
import org.apache.kafka.common.security.scram.ScramCredential;
import org.apache.kafka.common.security.scram.ScramExtensionsCallback;
import org.apache.kafka.common.security.scram.internals.ScramCredentialUtils;
import org.apache.kafka.common.security.scram.internals.ScramFormatter;
import org.apache.kafka.common.security.scram.internals.ScramMechanism;
import org.apache.kafka.common.security.scram.internals.ScramSaslClient;
import org.apache.kafka.common.security.scram.internals.ScramSaslServer;
import org.apache.kafka.common.security.scram.internals.ScramServerCallbackHandler;
import org.apache.kafka.common.security.token.delegation.TokenInformation;
import org.apache.kafka.common.security.token.delegation.internals.DelegationTokenCache;
import org.apache.kafka.common.utils.SecurityUtils;

/** Kafka's SASL classes, one command a line: texts and bytes are hex, the answer is "ok …" or "error …". */
public class SaslOracle {
    private static SaslServer server;
    private static SaslClient client;

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            String[] words = line.split(" ", -1);
            try {
                System.out.println("ok " + answer(words));
            } catch (Throwable e) {
                System.out.println("error " + (e + "").replace('\n', ' '));
            }
            System.out.flush();
        }
    }

    private static String answer(String[] words) throws Exception {
        switch (words[0]) {
            case "jaas": return jaas(text(words[1]));
            case "credential": return credential(words[1], text(words[2]), Integer.parseInt(words[3]));
            case "plain": server = plain(text(words[1])); return "";
            case "scram": server = scram(words[1], text(words[2]), text(words[3])); return "";
            case "oauth": server = oauth(words); return "";
            case "unsecured": server = unsecured(text(words[1])); return "";
            case "client": client = client(words); return "";
            case "step": return step(bytes(words[1]));
            case "respond": return respond(bytes(words[1]));
            case "token": return HexFormat.of().formatHex(kafka.zk.DelegationTokenInfoZNode.encode(token(words)));
            case "read-token": return readToken(bytes(words[1]));
            case "hmac": return hmac(text(words[1]), text(words[2]));
            default: throw new IllegalArgumentException(words[0]);
        }
    }

    private static List<AppConfigurationEntry> entries(String jaas) {
        return JaasContext.loadClientContext(Map.of("sasl.jaas.config", new Password(jaas))).configurationEntries();
    }

    private static String jaas(String given) {
        AppConfigurationEntry entry = entries(given).get(0);
        StringBuilder found = new StringBuilder(hex(entry.getLoginModuleName()) + " " + entry.getControlFlag());
        Map<String, Object> options = new TreeMap<>();
        for (Map.Entry<String, ?> option : entry.getOptions().entrySet())
            options.put(option.getKey() == null ? "" : option.getKey(), option.getValue());
        options.forEach((key, value) -> found.append(" ").append(hex(key)).append("=").append(hex((String) value)));
        return found.toString();
    }

    private static String credential(String mechanism, String password, int iterations) throws Exception {
        ScramFormatter formatter = new ScramFormatter(ScramMechanism.forMechanismName(mechanism));
        return hex(ScramCredentialUtils.credentialToString(formatter.generateCredential(password, iterations)));
    }

    private static SaslServer plain(String jaas) {
        PlainServerCallbackHandler handler = new PlainServerCallbackHandler();
        handler.configure(Map.of(), "PLAIN", entries(jaas));
        return new PlainSaslServer(handler);
    }

    private static SaslServer scram(String name, String user, String credential) throws Exception {
        CredentialCache cache = new CredentialCache();
        cache.createCache(name, ScramCredential.class).put(user, ScramCredentialUtils.credentialFromString(credential));
        ScramServerCallbackHandler handler = new ScramServerCallbackHandler(
            cache.cache(name, ScramCredential.class), new DelegationTokenCache(List.of(name)));
        return new ScramSaslServer(ScramMechanism.forMechanismName(name), Map.of(), handler);
    }

    private static SaslServer oauth(String[] words) {
        Map<String, Object> configs = new HashMap<>();
        configs.put("sasl.oauthbearer.jwks.endpoint.url", Path.of(text(words[1])).toUri().toString());
        configs.put("sasl.oauthbearer.clock.skew.seconds", 30);
        configs.put("sasl.oauthbearer.scope.claim.name", "scope");
        configs.put("sasl.oauthbearer.sub.claim.name", "sub");
        if (!words[2].isEmpty())
            configs.put("sasl.oauthbearer.expected.audience", Arrays.asList(text(words[2]).split(",")));
        if (!words[3].isEmpty())
            configs.put("sasl.oauthbearer.expected.issuer", text(words[3]));
        OAuthBearerValidatorCallbackHandler handler = new OAuthBearerValidatorCallbackHandler();
        String module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;";
        handler.configure(configs, "OAUTHBEARER", entries(module));
        return new OAuthBearerSaslServer(handler);
    }

    private static SaslServer unsecured(String jaas) {
        AuthenticateCallbackHandler handler = new OAuthBearerUnsecuredValidatorCallbackHandler();
        handler.configure(Map.of(), "OAUTHBEARER", entries(jaas));
        return new OAuthBearerSaslServer(handler);
    }

    private static SaslClient client(String[] words) throws Exception {
        Map<String, String> extensions = words[4].equals("token") ? Map.of("tokenauth", "true") : Map.of();
        CallbackHandler handler = callbacks -> {
            for (Callback callback : callbacks) {
                if (callback instanceof NameCallback)
                    ((NameCallback) callback).setName(text(words[2]));
                else if (callback instanceof PasswordCallback)
                    ((PasswordCallback) callback).setPassword(text(words[3]).toCharArray());
                else if (callback instanceof ScramExtensionsCallback)
                    ((ScramExtensionsCallback) callback).extensions(extensions);
            }
        };
        return new ScramSaslClient(ScramMechanism.forMechanismName(words[1]), handler);
    }

    private static String step(byte[] token) throws Exception {
        byte[] answer = server.evaluateResponse(token);
        if (!server.isComplete())
            return HexFormat.of().formatHex(answer);
        Object lifetime = server.getNegotiatedProperty("CREDENTIAL.LIFETIME.MS");
        return HexFormat.of().formatHex(answer) + " " + hex(server.getAuthorizationID()) + " " + lifetime;
    }

    private static String respond(byte[] challenge) throws Exception {
        byte[] answer = client.evaluateChallenge(challenge);
        return (answer == null ? "-" : HexFormat.of().formatHex(answer)) + (client.isComplete() ? " complete" : "");
    }

    private static TokenInformation token(String[] words) {
        List<KafkaPrincipal> renewers = new ArrayList<>();
        for (int i = 7; i < words.length; i++)
            renewers.add(SecurityUtils.parseKafkaPrincipal(text(words[i])));
        return new TokenInformation(text(words[1]), SecurityUtils.parseKafkaPrincipal(text(words[2])),
            SecurityUtils.parseKafkaPrincipal(text(words[3])), renewers,
            Long.parseLong(words[4]), Long.parseLong(words[5]), Long.parseLong(words[6]));
    }

    private static String readToken(byte[] data) {
        TokenInformation found = kafka.zk.DelegationTokenInfoZNode.decode(data).get();
        StringBuilder answer = new StringBuilder(String.join(" ",
            hex(found.tokenId()), hex(found.ownerAsString()), hex(found.tokenRequesterAsString()),
            found.issueTimestamp() + "", found.maxTimestamp() + "", found.expiryTimestamp() + ""));
        for (String renewer : found.renewersAsString())
            answer.append(" ").append(hex(renewer));
        return answer.toString();
    }

    private static String hmac(String tokenId, String key) {
        return HexFormat.of().formatHex(kafka.server.DelegationTokenManager.createHmac(tokenId, key));
    }

    private static String hex(String text) {
        return HexFormat.of().formatHex(text.getBytes(StandardCharsets.UTF_8));
    }

    private static byte[] bytes(String hex) {
        return HexFormat.of().parseHex(hex);
    }

    private static String text(String hex) {
        return new String(bytes(hex), StandardCharsets.UTF_8);
    }
}
