// Apache Kafka's own record code behind a pipe: one command a line in, one answer a line out.
// Run by oracle.py with the jars of Kafka 3.9 on the class path: `java -cp 'libs/*' RecordsOracle.java`.
//
// Records are written as  offset:timestamp:key:value:header=value,header=value  and joined by ';';
// bytes are hex, a null is '~', nothing at all is '-'.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.*;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.RecordValidationException;

public class RecordsOracle {
    static final HexFormat HEX = HexFormat.of();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            System.out.println(answer(line.split(" ")));
            System.out.flush();
        }
    }

    static String answer(String[] a) {
        try {
            switch (a[0]) {
                case "build": return build(a);
                case "read": return read(bytes(a[1]));
                case "down": return down(a);
                case "marker": return marker(a);
                case "validate": return validate(a);
                default: return "what? " + a[0];
            }
        } catch (RecordValidationException e) {
            StringBuilder where = new StringBuilder();
            e.recordErrors().forEach(r -> where.append(',').append(r.batchIndex));
            return "error " + Errors.forException(e.invalidException()).code() + " " + where.substring(1);
        } catch (Throwable e) {
            return "error " + Errors.forException(e).code() + " - " + e.toString().replace('\n', ' ');
        }
    }

    // build magic codec timestampType appendTime baseOffset producerId epoch sequence records
    static String build(String[] a) {
        MemoryRecordsBuilder builder = MemoryRecords.builder(ByteBuffer.allocate(1024), Byte.parseByte(a[1]),
            compression(a[2]), type(a[3]), Long.parseLong(a[5]), Long.parseLong(a[4]),
            Long.parseLong(a[6]), Short.parseShort(a[7]), Integer.parseInt(a[8]), false, -1);
        for (String row : a[9].split(";")) {
            String[] f = row.split(":");
            builder.appendWithOffset(Long.parseLong(f[0]), Long.parseLong(f[1]), bytes(f[2]), bytes(f[3]), headers(f[4]));
        }
        return "ok " + hex(builder.build());
    }

    static String read(byte[] data) {
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(data));
        List<String> rows = new ArrayList<>();
        for (RecordBatch batch : records.batches()) {
            batch.ensureValid();
            for (Record record : batch) rows.add(row(record));
        }
        return "ok " + (rows.isEmpty() ? "-" : String.join(";", rows));
    }

    static String row(Record r) {
        List<String> headers = new ArrayList<>();
        for (Header h : r.headers()) headers.add(hex(Utils.utf8(h.key())) + "=" + hex(h.value()));
        return r.offset() + ":" + r.timestamp() + ":" + hex(Utils.toNullableArray(r.key())) + ":"
            + hex(Utils.toNullableArray(r.value())) + ":" + (headers.isEmpty() ? "-" : String.join(",", headers));
    }

    // down magic firstOffset data
    static String down(String[] a) {
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(bytes(a[3])));
        return "ok " + hex(records.downConvert(Byte.parseByte(a[1]), Long.parseLong(a[2]), Time.SYSTEM).records());
    }

    // marker kind producerId epoch coordinatorEpoch timestamp offset leaderEpoch
    static String marker(String[] a) {
        EndTransactionMarker marker = new EndTransactionMarker(
            ControlRecordType.fromTypeId(Short.parseShort(a[1])), Integer.parseInt(a[4]));
        return "ok " + hex(MemoryRecords.withEndTransactionMarker(Long.parseLong(a[6]), Long.parseLong(a[5]),
            Integer.parseInt(a[7]), Long.parseLong(a[2]), Short.parseShort(a[3]), marker));
    }

    // validate magic codec timestampType now before after compacted baseOffset data; codec -1 is the producer's
    static String validate(String[] a) {
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(bytes(a[9])));
        CompressionType source = CompressionType.NONE;
        for (RecordBatch batch : records.batches())
            if (batch.compressionType() != CompressionType.NONE) source = batch.compressionType();
        Compression target = a[2].equals("-1") ? Compression.of(source).build() : compression(a[2]);
        long now = Long.parseLong(a[4]);
        Time clock = (Time) Proxy.newProxyInstance(Time.class.getClassLoader(), new Class<?>[] {Time.class},
            (proxy, method, arguments) -> method.getName().equals("milliseconds") ? now : 0L);
        LogValidator validator = new LogValidator(records, new TopicPartition("t", 0), clock, source, target,
            Boolean.parseBoolean(a[7]), Byte.parseByte(a[1]), type(a[3]), Long.parseLong(a[5]), Long.parseLong(a[6]),
            7, AppendOrigin.CLIENT, MetadataVersion.latestProduction());
        return "ok " + hex(validator.validateMessagesAndAssignOffsets(PrimitiveRef.ofLong(Long.parseLong(a[8])),
            new Silent(), BufferSupplier.NO_CACHING).validatedRecords);
    }

    static class Silent implements LogValidator.MetricsRecorder {
        public void recordInvalidMagic() { }
        public void recordInvalidOffset() { }
        public void recordInvalidSequence() { }
        public void recordInvalidChecksums() { }
        public void recordNoKeyCompactedTopic() { }
    }

    static TimestampType type(String number) {
        return number.equals("1") ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME;
    }

    static Compression compression(String number) {
        return Compression.of(CompressionType.forId(Integer.parseInt(number))).build();
    }

    static byte[] bytes(String text) {
        if (text.equals("~")) return null;
        return text.equals("-") ? new byte[0] : HEX.parseHex(text);
    }

    static String hex(byte[] data) {
        if (data == null) return "~";
        return data.length == 0 ? "-" : HEX.formatHex(data);
    }

    static String hex(AbstractRecords records) {
        ByteBuffer buffer = ((MemoryRecords) records).buffer();
        return hex(Utils.toArray(buffer));
    }

    static String hex(Records records) {
        return hex((AbstractRecords) records);
    }

    static Header[] headers(String text) {
        if (text.equals("-")) return new Header[0];
        List<Header> out = new ArrayList<>();
        for (String part : text.split(",")) {
            String[] pair = part.split("=");
            out.add(new RecordHeader(new String(bytes(pair[0]), java.nio.charset.StandardCharsets.UTF_8), bytes(pair[1])));
        }
        return out.toArray(new Header[0]);
    }
}
