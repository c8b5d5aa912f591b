import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/** A line of input is `rules name` or `- der`, each in base64; a line of output is the principal or Java's form of the name. */
public class MapperFacts {
    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", -1);
            System.out.println(words[0].equals("-") ? name(words[1]) : map(text(words[0]), text(words[1])));
        }
    }

    private static String map(String rules, String name) {
        try {
            return encoded(SslPrincipalMapper.fromRules(rules).getName(name));
        } catch (Exception | StackOverflowError e) {
            return "!";
        }
    }

    private static String name(String der) {
        try {
            return encoded(new X500Principal(Base64.getDecoder().decode(der)).getName());
        } catch (IllegalArgumentException e) {
            return "!";
        }
    }

    private static String text(String word) {
        return new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8);
    }

    private static String encoded(String text) {
        return "=" + Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }
}
