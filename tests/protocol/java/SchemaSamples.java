// Filled-in messages of every API and version, as Apache Kafka's own schemas lay them out.
// Prints  NAME VERSION request|response HEX  a line; three samples each: arrays empty, of one and of two, nullable
// fields null in the first; error codes are 0. Run by test_schemas.py with the jars of a Kafka on the class path.

import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.TreeMap;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.types.*;

public class SchemaSamples {
    static int counter;

    public static void main(String[] args) {
        for (ApiKeys api : ApiKeys.values()) {
            Schema[] requests = api.messageType.requestSchemas(), responses = api.messageType.responseSchemas();
            for (short version = 0; version < requests.length; version++) {
                print(api, version, "Request", requests[version]);
                print(api, version, "Response", responses[version]);
            }
        }
    }

    static void print(ApiKeys api, short version, String kind, Schema schema) {
        if (schema == null) return; // removed in this Kafka
        for (int size = 0; size < 3; size++) {
            counter = 0;
            Struct struct = struct(schema, size);
            ByteBuffer buffer = ByteBuffer.allocate(struct.sizeOf());
            struct.writeTo(buffer);
            System.out.println(api.name + kind + " " + version + " " + HexFormat.of().formatHex(buffer.array()));
        }
    }

    static Struct struct(Schema schema, int size) {
        Struct struct = new Struct(schema);
        for (BoundField field : schema.fields()) {
            boolean error = field.def.name.equals("error_code");
            struct.set(field, error ? (Object) (short) 0 : value(field.def.type, size));
        }
        return struct;
    }

    static Object value(Type type, int size) {
        counter++;
        if (type instanceof Schema) return struct((Schema) type, size);
        if (type instanceof TaggedFields) return new TreeMap<Integer, Object>();
        if (type.isNullable() && size == 0) return null;
        if (type.isArray()) {
            Object[] items = new Object[size];
            for (int i = 0; i < size; i++) items[i] = value(type.arrayElementType().get(), size);
            return items;
        }
        switch (((Type.DocumentedType) type).typeName().replace("COMPACT_", "").replace("NULLABLE_", "")) {
            case "BOOLEAN": return counter % 2 == 0;
            case "INT8": return (byte) counter;
            case "INT16": return (short) (300 + counter);
            case "UINT16": return 40000 + counter;
            case "INT32": return 70000 + counter;
            case "INT64": return 5000000000L + counter;
            case "FLOAT64": return counter + 0.5;
            case "UUID": return new Uuid(counter, 77);
            case "STRING": return "s" + counter;
            case "BYTES": return ByteBuffer.wrap(new byte[] {1, 2, (byte) counter});
            default: return null; // RECORDS
        }
    }
}
