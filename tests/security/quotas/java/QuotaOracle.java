// Apache Kafka's own quota code behind a pipe: one command a line in, as a JSON array, one answer a line out, as JSON.
// Run by oracle.py with the jars of Kafka 3.9 on the class path: `java -cp 'libs/*' QuotaOracle.java`.
//
// An entity is an object {type: name or null}; in "quota" a missing user or client id is null, a default "<default>".

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.net.InetAddress;
import java.util.*;
import java.util.function.Supplier;
import kafka.network.ConnectionQuotas;
import kafka.server.*;
import org.apache.kafka.common.errors.ThrottlingQuotaExceededException;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.metadata.ClientQuotaRecord;
import org.apache.kafka.common.metrics.*;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.quota.*;
import org.apache.kafka.common.requests.AlterClientQuotasRequest;
import org.apache.kafka.common.requests.ApiError;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.utils.*;
import org.apache.kafka.controller.ClientQuotaControlManager;
import org.apache.kafka.image.*;
import org.apache.kafka.network.ConnectionThrottledException;
import org.apache.kafka.network.Session;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.config.ClientQuotaManagerConfig;
import scala.Option;

public class QuotaOracle {
    static final ObjectMapper JSON = new ObjectMapper();
    static final ListenerName LISTENER = new ListenerName("PLAINTEXT");
    static final Played TIME = new Played();
    static ClientQuotaManager manager;
    static ConnectionQuotas connections;

    /** A clock that stands still until it is set. */
    static class Played implements Time {
        long now = 0;
        public long milliseconds() { return now; }
        public long nanoseconds() { return now * 1000000L; }
        public void sleep(long ms) { now += ms; }
        public void waitObject(Object o, Supplier<Boolean> condition, long deadline) { }
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line; (line = in.readLine()) != null; ) {
            Object answer;
            try {
                answer = answer(JSON.readTree(line));
            } catch (Throwable e) {
                answer = Map.of("error", (int) Errors.forException(e).code(), "message", String.valueOf(e));
            }
            System.out.println(JSON.writeValueAsString(answer));
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    static Object answer(JsonNode a) throws Exception {
        switch (a.get(0).asText()) {
            case "sanitize": return Sanitizer.sanitize(a.get(1).asText());
            case "desanitize": return Sanitizer.desanitize(a.get(1).asText());
            case "new": return start(a.get(1).asText(), a.get(2).asInt(), a.get(3).asInt());
            case "quota": return quota(text(a.get(1)), text(a.get(2)), a.get(3));
            case "find": return find(a.get(1).asText(), a.get(2).asText());
            case "record": return record(a);
            case "mutate": return mutate(a);
            case "connect": return connect(a);
            case "describe": return describe(a.get(1), a.get(2), a.get(3).asBoolean());
            case "alter": return alter(a.get(1), a.get(2));
            default: throw new IllegalArgumentException(a.get(0).asText());
        }
    }

    static String text(JsonNode node) {
        return node.isNull() ? null : node.asText();
    }

    static Object start(String kind, int samples, int seconds) {
        ClientQuotaManagerConfig config = new ClientQuotaManagerConfig(samples, seconds);
        TIME.now = 0;
        if (manager != null)
            manager.shutdown();
        Metrics metrics = new Metrics(TIME);
        Option<org.apache.kafka.server.quota.ClientQuotaCallback> none = Option.empty();
        if (kind.equals("request"))
            manager = new ClientRequestQuotaManager(config, metrics, TIME, "", none);
        else if (kind.equals("mutation"))
            manager = new ControllerMutationQuotaManager(config, metrics, TIME, "", none);
        else
            manager = new ClientQuotaManager(config, metrics, QuotaType.Produce$.MODULE$, TIME, "", none);
        Properties properties = new Properties();
        properties.put("zookeeper.connect", "x:1");
        properties.put("quota.window.num", "" + samples);
        properties.put("quota.window.size.seconds", "" + seconds);
        KafkaConfig broker = new KafkaConfig(properties);
        connections = new ConnectionQuotas(broker, TIME, new Metrics(TIME));
        connections.addListener(broker, LISTENER);
        return true;
    }

    static Object quota(String user, String client, JsonNode bound) {
        Option<String> sanitized = client == null ? Option.empty()
            : Option.apply(client.equals("<default>") ? client : Sanitizer.sanitize(client));
        manager.updateQuota(
            Option.apply(user == null || user.equals("<default>") ? user : Sanitizer.sanitize(user)),
            Option.apply(client), sanitized,
            bound.isNull() ? Option.empty() : Option.apply(Quota.upperBound(bound.asDouble())));
        return true;
    }

    static Session session(String user) {
        return new Session(new KafkaPrincipal("User", user), InetAddress.getLoopbackAddress());
    }

    static Object find(String user, String client) {
        scala.collection.Map<String, String> tags =
            manager.getOrCreateQuotaSensors(session(user), client).metricTags();
        return List.of(Sanitizer.desanitize(tags.apply("user")), tags.apply("client-id"),
            manager.quota(user, client).bound());
    }

    // record USER CLIENT VALUE NOW: the throttle time; a negative value is taken back without a check
    static Object record(JsonNode a) {
        Session session = session(a.get(1).asText());
        TIME.now = a.get(4).asLong();
        double value = a.get(3).asDouble();
        if (value < 0) {
            manager.recordNoThrottle(session, a.get(2).asText(), value);
            return 0;
        }
        return manager.recordAndGetThrottleTimeMs(session, a.get(2).asText(), value, TIME.now);
    }

    // mutate USER CLIENT STRICT [[PARTITIONS, NOW], …] END: which are accepted, and the throttle time at END
    static Object mutate(JsonNode a) {
        ControllerMutationQuotaManager mutations = (ControllerMutationQuotaManager) manager;
        Session session = session(a.get(1).asText());
        ControllerMutationQuota quota = a.get(3).asBoolean()
            ? mutations.newStrictQuotaFor(session, a.get(2).asText())
            : mutations.newPermissiveQuotaFor(session, a.get(2).asText());
        List<Object> accepted = new ArrayList<>();
        for (JsonNode each : a.get(4)) {
            TIME.now = each.get(1).asLong();
            try {
                quota.record(each.get(0).asDouble());
                accepted.add(true);
            } catch (ThrottlingQuotaExceededException e) {
                accepted.add(false);
            }
        }
        TIME.now = a.get(5).asLong();
        return List.of(accepted, quota.throttleTime());
    }

    // connect ADDRESS BOUND NOW
    static Object connect(JsonNode a) throws Exception {
        InetAddress address = InetAddress.getByName(a.get(1).asText());
        TIME.now = a.get(3).asLong();
        if (connections.connectionRateForIp(address) != a.get(2).asInt())
            connections.updateIpConnectionRateQuota(Option.apply(address), Option.apply(a.get(2).asInt()));
        try {
            connections.inc(LISTENER, address, null);
            return 0;
        } catch (ConnectionThrottledException e) {
            return e.throttleTimeMs;
        }
    }

    static ClientQuotaEntity entity(JsonNode node) {
        Map<String, String> entries = new HashMap<>();
        node.fields().forEachRemaining(field -> entries.put(field.getKey(), text(field.getValue())));
        return new ClientQuotaEntity(entries);
    }

    static Map<String, Double> values(JsonNode node) {
        Map<String, Double> values = new HashMap<>();
        node.fields().forEachRemaining(
            field -> values.put(field.getKey(), field.getValue().isNull() ? null : field.getValue().asDouble()));
        return values;
    }

    // describe [[ENTITY, VALUES], …] [[TYPE, MATCH TYPE, MATCH], …] STRICT
    static Object describe(JsonNode quotas, JsonNode components, boolean strict) {
        Map<ClientQuotaEntity, ClientQuotaImage> images = new HashMap<>();
        for (JsonNode each : quotas)
            images.put(entity(each.get(0)), new ClientQuotaImage(values(each.get(1))));
        DescribeClientQuotasRequestData request = new DescribeClientQuotasRequestData().setStrict(strict);
        for (JsonNode each : components)
            request.components().add(new DescribeClientQuotasRequestData.ComponentData().setEntityType(each.get(0).asText())
                .setMatchType((byte) each.get(1).asInt()).setMatch(text(each.get(2))));
        List<Object> found = new ArrayList<>();
        for (DescribeClientQuotasResponseData.EntryData entry : new ClientQuotasImage(images).describe(request).entries()) {
            Map<String, String> names = new TreeMap<>();
            entry.entity().forEach(part -> names.put(part.entityType(), part.entityName()));
            Map<String, Double> values = new TreeMap<>();
            entry.values().forEach(value -> values.put(value.key(), value.value()));
            found.add(List.of(names, values));
        }
        return found;
    }

    // alter [[ENTITY, VALUES], …] [[[[TYPE, NAME], …], [[KEY, VALUE or null], …]], …]: the code of each entity, and all afterwards
    static Object alter(JsonNode quotas, JsonNode entries) throws Exception {
        ClientQuotaControlManager control = control();
        for (JsonNode each : quotas)
            each.get(1).fields().forEachRemaining(
                value -> control.replay(set(each.get(0), value.getKey(), value.getValue().asDouble())));
        AlterClientQuotasRequestData request = new AlterClientQuotasRequestData();
        for (JsonNode each : entries)
            request.entries().add(entry(each));
        Method alter = ClientQuotaControlManager.class.getDeclaredMethod("alterClientQuotas", Collection.class);
        alter.setAccessible(true);
        Object result = alter.invoke(control, new AlterClientQuotasRequest(request, (short) 1).entries());
        for (Object record : (List<?>) part(result, "records"))
            control.replay((ClientQuotaRecord) ((ApiMessageAndVersion) record).message());
        List<Object> codes = new ArrayList<>();
        ((Map<?, ?>) part(result, "response")).forEach((entity, error) ->
            codes.add(List.of(((ClientQuotaEntity) entity).entries(), (int) ((ApiError) error).error().code())));
        return List.of(codes, contents(control));
    }

    static Object part(Object result, String name) throws Exception {
        Method method = result.getClass().getMethod(name);
        method.setAccessible(true);
        return method.invoke(result);
    }

    static ClientQuotaControlManager control() throws Exception {
        Class<?> builder = Class.forName("org.apache.kafka.controller.ClientQuotaControlManager$Builder");
        var constructor = builder.getDeclaredConstructor();
        constructor.setAccessible(true);
        Method build = builder.getDeclaredMethod("build");
        build.setAccessible(true);
        return (ClientQuotaControlManager) build.invoke(constructor.newInstance());
    }

    static ClientQuotaRecord set(JsonNode entity, String key, double value) {
        ClientQuotaRecord record = new ClientQuotaRecord().setKey(key).setValue(value);
        entity.fields().forEachRemaining(field -> record.entity().add(
            new ClientQuotaRecord.EntityData().setEntityType(field.getKey()).setEntityName(text(field.getValue()))));
        return record;
    }

    static AlterClientQuotasRequestData.EntryData entry(JsonNode node) {
        AlterClientQuotasRequestData.EntryData entry = new AlterClientQuotasRequestData.EntryData();
        for (JsonNode pair : node.get(0))
            entry.entity().add(new AlterClientQuotasRequestData.EntityData()
                .setEntityType(pair.get(0).asText()).setEntityName(text(pair.get(1))));
        for (JsonNode op : node.get(1))
            entry.ops().add(new AlterClientQuotasRequestData.OpData().setKey(op.get(0).asText())
                .setValue(op.get(1).asDouble()).setRemove(op.get(1).isNull()));
        return entry;
    }

    static List<Object> contents(ClientQuotaControlManager control) throws Exception {
        var field = ClientQuotaControlManager.class.getDeclaredField("clientQuotaData");
        field.setAccessible(true);
        List<Object> found = new ArrayList<>();
        ((Map<?, ?>) field.get(control)).forEach((entity, values) ->
            found.add(List.of(((ClientQuotaEntity) entity).entries(), new TreeMap<>((Map<?, ?>) values))));
        return found;
    }
}
