import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import kafka.cluster.Broker;
import kafka.zk.*;
import org.apache.zookeeper.data.Stat;

/** Reads lines of a kind, a tab and a node's data; answers each with what Apache Kafka writes of what it read there. */
public class NodeFacts {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null;) {
            String[] words = line.split("\t", 2);
            System.out.println(again(words[0], words[1].getBytes(StandardCharsets.UTF_8)));
        }
    }

    static String again(String kind, byte[] data) {
        switch (kind) {
            case "topic":
                TopicZNode.TopicIdReplicaAssignment topic = TopicZNode.decode("t", data);
                return text(TopicZNode.encode(topic.topicId(), topic.assignment()));
            case "broker":
                Broker broker = BrokerIdZNode.decode(1, data).broker();
                return text(BrokerIdZNode.encode(new BrokerInfo(broker, 5, -1)));
            case "state":
                return text(TopicPartitionStateZNode.encode(TopicPartitionStateZNode.decode(data, new Stat()).get()));
            case "isr":
                return text(IsrChangeNotificationSequenceZNode.encode(IsrChangeNotificationSequenceZNode.decode(data)));
            case "preferred":
                return text(PreferredReplicaElectionZNode.encode(PreferredReplicaElectionZNode.decode(data)));
            case "reassign":
                return text(ReassignPartitionsZNode.encode(ReassignPartitionsZNode.decode(data).toOption().get()));
            case "log_dir":
                Object broken = LogDirEventNotificationSequenceZNode.decode(data).get();
                return text(LogDirEventNotificationSequenceZNode.encode((Integer) broken));
            case "controller":
                return text(ControllerZNode.encode((Integer) ControllerZNode.decode(data).get(), 5L, -1));
            case "config":
                return text(ConfigEntityChangeNotificationSequenceZNode.encode(new String(data)));
            default:
                return String.join(" ", IsrChangeNotificationSequenceZNode.path(""),
                    LogDirEventNotificationSequenceZNode.path(""),
                    ConfigEntityChangeNotificationSequenceZNode.createPath(),
                    PreferredReplicaElectionZNode.path(), ReassignPartitionsZNode.path());
        }
    }

    static String text(byte[] data) { return new String(data, StandardCharsets.UTF_8); }
}
