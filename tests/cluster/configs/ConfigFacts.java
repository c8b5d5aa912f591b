import java.lang.reflect.Method;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.server.config.QuotaConfigs;
import org.apache.kafka.storage.internals.log.LogConfig;

/** Prints Apache Kafka's own config definitions, one a line, fields separated by tabs; \N is null. */
public class ConfigFacts {
    public static void main(String[] args) throws Exception {
        Object module = Class.forName("kafka.server.DynamicBrokerConfig$").getField("MODULE$").get(null);
        Method modes = module.getClass().getDeclaredMethod("dynamicConfigUpdateModes");
        modes.setAccessible(true);
        Map<?, ?> dynamic = (Map<?, ?>) modes.invoke(module);
        print("broker", kafka.server.KafkaConfig.configDef(), dynamic);
        ConfigDef rates = QuotaConfigs.brokerQuotaConfigs(); // dynamic only, at either level; DescribeConfigs lists those set
        rates.configKeys().replaceAll((name, key) -> new ConfigDef.ConfigKey(name, key.type, key.defaultValue,
            key.validator, key.importance, key.documentation, key.group, key.orderInGroup, key.width, key.displayName,
            key.dependents, key.recommender, true));
        print("broker", rates, rates.configKeys().keySet().stream().collect(Collectors.toMap(n -> n, n -> "cluster-wide")));
        print("topic", LogConfig.configDefCopy(), Map.of());
    }

    private static void print(String kind, ConfigDef definition, Map<?, ?> dynamic) {
        for (ConfigDef.ConfigKey key : definition.configKeys().values()) {
            String value = key.defaultValue == null ? "\\N" : ConfigDef.convertToString(key.defaultValue, key.type);
            Object mode = dynamic.containsKey(key.name) ? dynamic.get(key.name) : "read-only";
            System.out.println(String.join("\t", kind, key.name, key.type.toString(), value,
                key.importance.toString(), mode.toString(), String.valueOf(key.internalConfig)));
        }
    }
}
