// Frames of requests between brokers as Apache Kafka's generated classes write them, and what its JSON converters say is
// in them. Prints  NAME VERSION Request|Response SAMPLE HEX JSON  a line. Samples:
//   unset  as they are made, the client id null
//   empty  arrays empty, the client id null
//   bare   arrays of one, what may be null or unset is
//   full   arrays of two, everything set
//   later  full, and tagged fields that this version does not know, in headers too
// Run by interbroker.py with the jars of Kafka 3.9.1 on the class path.

import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.*;
import org.apache.kafka.common.protocol.types.*;
import org.apache.kafka.common.requests.*;

public class InterBrokerFrames {
    static final int CORRELATION = 0x01020304;
    static final RawTaggedField UNKNOWN = new RawTaggedField(99, new byte[] {1, 2, 3});
    static final List<String> SAMPLES = List.of("unset", "empty", "bare", "full", "later");
    static final ApiKeys[] APIS = {
        ApiKeys.LEADER_AND_ISR, ApiKeys.STOP_REPLICA, ApiKeys.UPDATE_METADATA, ApiKeys.CONTROLLED_SHUTDOWN,
        ApiKeys.API_VERSIONS, ApiKeys.WRITE_TXN_MARKERS
    };
    static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    static int counter;
    static String sample;

    public static void main(String[] args) throws Exception {
        for (ApiKeys api : APIS)
            for (String each : SAMPLES) {
                sample = each;
                Schema[] requests = api.messageType.requestSchemas(), responses = api.messageType.responseSchemas();
                for (short version = 0; version < requests.length; version++) {
                    request(api, version, filled(api.messageType.newRequest(), requests[version], version));
                    response(api, version, filled(api.messageType.newResponse(), responses[version], version));
                }
            }
    }

    static ApiMessage filled(ApiMessage message, Schema schema, short version) throws Exception {
        if (sample.equals("unset")) return message;
        counter = 0;
        Struct struct = struct(schema);
        ByteBuffer buffer = ByteBuffer.allocate(struct.sizeOf());
        struct.writeTo(buffer);
        buffer.flip();
        message.read(new ByteBufferAccessor(buffer), version);
        return message;
    }

    static void request(ApiKeys api, short version, ApiMessage message) throws Exception {
        String client = sample.equals("unset") || sample.equals("empty") ? null : "me";
        RequestHeader header = new RequestHeader(api, version, client, CORRELATION);
        print(api, "Request", version, header.data(), header.headerVersion(), message);
    }

    static void response(ApiKeys api, short version, ApiMessage message) throws Exception {
        ResponseHeader header = new ResponseHeader(CORRELATION, api.responseHeaderVersion(version));
        print(api, "Response", version, header.data(), header.headerVersion(), message);
    }

    static void print(ApiKeys api, String kind, short version, Message header, short headerVersion, ApiMessage message)
            throws Exception {
        boolean tags = headerVersion >= (kind.equals("Request") ? 2 : 1);
        if (sample.equals("later") && tags) header.unknownTaggedFields().add(UNKNOWN);
        ByteBuffer frame = RequestUtils.serialize(header, headerVersion, message, version);
        StringBuilder hex = new StringBuilder(String.format("%08x", frame.remaining()));
        while (frame.hasRemaining()) hex.append(String.format("%02x", frame.get()));
        Class<?> converter = Class.forName(message.getClass().getName() + "JsonConverter");
        Object json = converter.getMethod("write", message.getClass(), short.class).invoke(null, message, version);
        OUT.println(api.name + " " + version + " " + kind + " " + sample + " " + hex + " " + json);
    }

    static Struct struct(Schema schema) throws Exception {
        Struct struct = new Struct(schema);
        for (BoundField field : schema.fields()) {
            boolean error = field.def.name.equals("error_code") && sample.equals("empty");
            struct.set(field, error ? (Object) (short) 0 : value(field.def.type));
        }
        return struct;
    }

    static Object value(Type type) throws Exception {
        boolean full = sample.equals("full") || sample.equals("later");
        counter++;
        if (type instanceof Schema) return struct((Schema) type);
        if (type instanceof TaggedFields) return tags((TaggedFields) type, full);
        if (type.isNullable() && !full) return null;
        if (type.isArray()) {
            Object[] items = new Object[sample.equals("empty") ? 0 : full ? 2 : 1];
            for (int i = 0; i < items.length; i++) items[i] = value(type.arrayElementType().get());
            return items;
        }
        switch (((Type.DocumentedType) type).typeName().replace("COMPACT_", "").replace("NULLABLE_", "")) {
            case "BOOLEAN": return full;
            case "INT8": return (byte) -counter;
            case "INT16": return (short) (300 + counter);
            case "INT32": return full ? 70000 + counter : -counter;
            case "INT64": return 5000000000L + counter;
            case "UUID": return full ? new Uuid(counter, 77) : Uuid.ZERO_UUID;
            case "STRING": return full ? "s\u00e9" + counter : "s".repeat(counter % 4 == 0 ? 130 : 0);
            default: throw new IllegalArgumentException(type.toString());
        }
    }

    static NavigableMap<Integer, Object> tags(TaggedFields type, boolean full) throws Exception {
        NavigableMap<Integer, Object> tags = new TreeMap<>();
        Field known = TaggedFields.class.getDeclaredField("fields");
        known.setAccessible(true);
        if (full)
            for (Map.Entry<?, ?> entry : ((Map<?, ?>) known.get(type)).entrySet())
                tags.put((Integer) entry.getKey(), value(((org.apache.kafka.common.protocol.types.Field) entry.getValue()).type));
        if (sample.equals("later")) tags.put(UNKNOWN.tag(), UNKNOWN);
        return tags;
    }
}
