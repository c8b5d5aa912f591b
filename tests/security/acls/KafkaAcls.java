import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.*;
import kafka.security.authorizer.AclAuthorizer;
import kafka.zk.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.resource.*;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.security.authorizer.AclEntry;
import org.apache.kafka.server.authorizer.*;
import org.apache.zookeeper.data.Stat;
import scala.jdk.javaapi.CollectionConverters;

/** Answers questions about ACLs, a line of JSON each, with Apache Kafka's own classes. */
public class KafkaAcls {
    static final ObjectMapper JSON = new ObjectMapper();
    static AclAuthorizer acl;
    static StandardAuthorizer standard;

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line; (line = in.readLine()) != null;) {
            JsonNode question = JSON.readTree(line);
            Map<String, Object> answer = new HashMap<>();
            try {
                answer.put("answer", answer(question));
            } catch (Throwable e) {
                answer.put("threw", e.toString());
            }
            out.println(JSON.writeValueAsString(answer));
        }
    }

    static Object answer(JsonNode question) throws Exception {
        switch (question.get("ask").asText()) {
            case "load": return load(question);
            case "authorize": return authorize(question.get("questions"));
            case "describe": return describe(question.get("filters"));
            case "encode": return encode(question);
            case "decode": return decode(question);
            case "change": return change(question);
            case "decode_change": return decodeChange(question);
            case "supported": return supported();
            default: return InetAddress.getByName(question.get("host").asText()).getHostAddress();
        }
    }

    // Authorizers

    static Object load(JsonNode question) throws Exception {
        boolean everyone = question.get("everyone").asBoolean();
        Map<ResourcePattern, Set<AclEntry>> nodes = new HashMap<>();
        standard = new StandardAuthorizer();
        Map<String, String> configs = new HashMap<>();
        configs.put("super.users", question.get("super_users").asText());
        configs.put("allow.everyone.if.no.acl.found", String.valueOf(everyone));
        configs.put("node.id", "1");
        standard.configure(configs);
        Map<Uuid, StandardAcl> all = new HashMap<>();
        for (JsonNode one : question.get("acls")) {
            AclBinding binding = new AclBinding(pattern(one), entry(one));
            nodes.computeIfAbsent(binding.pattern(), key -> new HashSet<>()).add(new AclEntry(binding.entry()));
            all.put(Uuid.randomUuid(), StandardAcl.fromAclBinding(binding));
        }
        standard.loadSnapshot(all);
        standard.completeInitialLoad();
        acl = new AclAuthorizer();
        Set<KafkaPrincipal> users = new HashSet<>();
        for (String user : question.get("super_users").asText().split(";"))
            if (!user.isEmpty()) users.add(SecurityUtils.parseKafkaPrincipal(user.trim()));
        set("superUsers", CollectionConverters.asScala(users).toSet());
        set("shouldAllowEveryoneIfNoAclIsFound", everyone);
        nodes.forEach((pattern, entries) -> acl.updateCache(
            pattern, new AclAuthorizer.VersionedAcls(CollectionConverters.asScala(entries).toSet(), 0)));
        return nodes.size();
    }

    static void set(String name, Object value) throws Exception {
        Field field = AclAuthorizer.class.getDeclaredField(name);
        field.setAccessible(true);
        field.set(acl, value);
    }

    /** For each question one character an authorizer: A of AclAuthorizer, S of StandardAuthorizer; 1 is allowed. */
    static Object authorize(JsonNode questions) throws Exception {
        List<String> answers = new ArrayList<>();
        for (JsonNode one : questions) {
            AuthorizableRequestContext context = context(one.get("principal").asText(), one.get("host").asText());
            AclOperation operation = AclOperation.fromCode((byte) one.get("operation").asInt());
            ResourceType type = ResourceType.fromCode((byte) one.get("type").asInt());
            answers.add(bit(ask(acl, context, operation, type, one.get("name")))
                + bit(ask(standard, context, operation, type, one.get("name"))));
        }
        return answers;
    }

    static AuthorizationResult ask(
        Authorizer authorizer, AuthorizableRequestContext context, AclOperation operation, ResourceType type, JsonNode name
    ) {
        if (name.isNull()) return authorizer.authorizeByResourceType(context, operation, type);
        ResourcePattern resource = new ResourcePattern(type, name.asText(), PatternType.LITERAL);
        return authorizer.authorize(context, List.of(new Action(operation, resource, 1, true, true))).get(0);
    }

    static String bit(AuthorizationResult result) { return result == AuthorizationResult.ALLOWED ? "1" : "0"; }

    static AuthorizableRequestContext context(String principal, String host) throws Exception {
        KafkaPrincipal who = SecurityUtils.parseKafkaPrincipal(principal);
        InetAddress where = InetAddress.getByName(host);
        return new AuthorizableRequestContext() {
            public String listenerName() { return "L"; }
            public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
            public KafkaPrincipal principal() { return who; }
            public InetAddress clientAddress() { return where; }
            public int requestType() { return 0; }
            public int requestVersion() { return 0; }
            public String clientId() { return ""; }
            public int correlationId() { return 0; }
        };
    }

    static Object describe(JsonNode filters) {
        List<List<String>> found = new ArrayList<>();
        for (JsonNode one : filters) {
            List<String> bindings = new ArrayList<>();
            acl.acls(filter(one)).forEach(binding -> bindings.add(binding.pattern() + " " + binding.entry()));
            Collections.sort(bindings);
            found.add(bindings);
        }
        return found;
    }

    static AclBindingFilter filter(JsonNode one) {
        return new AclBindingFilter(
            new ResourcePatternFilter(
                ResourceType.fromCode((byte) one.get("type").asInt()), text(one, "name"),
                PatternType.fromCode((byte) one.get("pattern").asInt())),
            new AccessControlEntryFilter(
                text(one, "principal"), text(one, "host"), AclOperation.fromCode((byte) one.get("operation").asInt()),
                AclPermissionType.fromCode((byte) one.get("permission").asInt())));
    }

    static String text(JsonNode one, String field) { return one.get(field).isNull() ? null : one.get(field).asText(); }

    static ResourcePattern pattern(JsonNode one) {
        return new ResourcePattern(
            ResourceType.fromCode((byte) one.get("type").asInt()), one.get("name").asText(),
            PatternType.fromCode((byte) one.get("pattern").asInt()));
    }

    static AccessControlEntry entry(JsonNode one) {
        return new AccessControlEntry(
            one.get("principal").asText(), one.get("host").asText(),
            AclOperation.fromCode((byte) one.get("operation").asInt()),
            AclPermissionType.fromCode((byte) one.get("permission").asInt()));
    }

    // Nodes

    static Object encode(JsonNode question) {
        Set<AclEntry> entries = new HashSet<>();
        for (JsonNode one : question.get("acls")) entries.add(new AclEntry(entry(one)));
        return new String(ResourceZNode.encode(CollectionConverters.asScala(entries).toSet()), StandardCharsets.UTF_8);
    }

    static Object decode(JsonNode question) {
        byte[] data = question.get("data").asText().getBytes(StandardCharsets.UTF_8);
        List<String> entries = new ArrayList<>();
        CollectionConverters.asJava(ResourceZNode.decode(data, new Stat()).acls())
            .forEach(entry -> entries.add(entry.ace.toString()));
        Collections.sort(entries);
        return entries;
    }

    static Object change(JsonNode question) {
        ResourcePattern pattern = pattern(question.get("pattern"));
        AclChangeNode node = ZkAclStore.apply(pattern.patternType()).changeStore().createChangeNode(pattern);
        String data = new String(node.bytes(), StandardCharsets.UTF_8);
        return List.of(ResourceZNode.path(pattern), node.path(), data);
    }

    static Object decodeChange(JsonNode question) {
        byte[] data = question.get("data").asText().getBytes(StandardCharsets.UTF_8);
        PatternType type = PatternType.fromCode((byte) question.get("pattern").asInt());
        return ZkAclStore.apply(type).changeStore().decode(data).toString();
    }

    static Object supported() {
        Map<Integer, List<Integer>> found = new TreeMap<>();
        for (ResourceType type : AclEntry.RESOURCE_TYPES) {
            List<Integer> codes = new ArrayList<>();
            AclEntry.supportedOperations(type).forEach(operation -> codes.add((int) operation.code()));
            Collections.sort(codes);
            found.put((int) type.code(), codes);
        }
        return found;
    }
}
