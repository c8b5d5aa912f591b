import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.security.PasswordEncoder;

/** Kafka's password encoder, one command a line: "encode|decode SECRET TEXT FACTORY CIPHER LENGTH ITERATIONS", texts in hex. */
public class PasswordOracle {
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
        PasswordEncoder encoder = PasswordEncoder.encrypting(
            new Password(text(words[1])), words[3].equals("-") ? null : words[3], words[4],
            Integer.parseInt(words[5]), Integer.parseInt(words[6]));
        String text = text(words[2]);
        String answer = words[0].equals("encode") ? encoder.encode(new Password(text)) : encoder.decode(text).value();
        return HexFormat.of().formatHex(answer.getBytes(StandardCharsets.UTF_8));
    }

    private static String text(String hex) {
        return new String(HexFormat.of().parseHex(hex), StandardCharsets.UTF_8);
    }
}
