import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Future;
import net.spy.memcached.CASResponse;
import net.spy.memcached.CASValue;
import net.spy.memcached.ConnectionFactoryBuilder;
import net.spy.memcached.ConnectionFactoryBuilder.Protocol;
import net.spy.memcached.MemcachedClient;
import net.spy.memcached.auth.AuthDescriptor;
import net.spy.memcached.auth.PlainCallbackHandler;

/** spymemcached: usage: SpyClient HOST:PORT ascii|binary [USER PASSWORD] */
public final class SpyClient {
    private static final int RECORDS =
        Integer.parseInt(System.getenv().getOrDefault("RECORDS", "20000"));

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }

    private static String value(String key) {
        return (key + ";").repeat(100);
    }

    public static void main(String[] arguments) throws Exception {
        String[] address = arguments[0].split(":");
        ConnectionFactoryBuilder settings = new ConnectionFactoryBuilder();
        settings.setProtocol(arguments[1].equals("binary") ? Protocol.BINARY : Protocol.TEXT);
        settings.setOpTimeout(20_000);
        if (arguments.length > 2) {
            var names = new PlainCallbackHandler(arguments[2], arguments[3]);
            settings.setAuthDescriptor(new AuthDescriptor(new String[] {"PLAIN"}, names));
        }
        var server = new InetSocketAddress(address[0], Integer.parseInt(address[1]));
        MemcachedClient cache = new MemcachedClient(settings.build(), List.of(server));
        try {
            single(cache);
            many(cache);
            check(!cache.getStats().isEmpty(), "stats");
            check(cache.flush().get(), "flush");
            check(cache.get("j1000") == null, "get after flush");
        } finally {
            cache.shutdown();
        }
        String protocol = arguments[1].replace("ascii", "ASCII") + (arguments.length > 2 ? ", SASL" : "");
        String exercised = "get, gets, getBulk, set, add, replace, append, prepend, cas, touch, incr, decr, delete, stats, flush";
        System.out.println("client | spymemcached | 2.12.3 | Java | " + protocol + " | " + exercised);
        System.out.println("spymemcached: " + RECORDS + " records and every command answered as expected");
    }

    private static void single(MemcachedClient cache) throws Exception {
        check(cache.set("greeting", 1000, "hello").get(), "set");
        check("hello".equals(cache.get("greeting")), "get");
        check(cache.get("nothing") == null, "get of nothing");
        check(!cache.add("greeting", 1000, "x").get(), "add");
        check(cache.replace("greeting", 1000, "hi").get(), "replace");
        CASValue<Object> found = cache.gets("greeting");
        check(cache.cas("greeting", found.getCas(), "two") == CASResponse.OK, "cas");
        check(cache.cas("greeting", found.getCas(), "three") == CASResponse.EXISTS, "stale cas");
        check(cache.append("greeting", "!").get(), "append");
        check(cache.prepend("greeting", ">").get(), "prepend");
        check(">two!".equals(cache.get("greeting")), "get of the longer");
        check(cache.touch("greeting", 1000).get(), "touch");
        check(cache.incr("count", 1, 10) == 10, "incr of nothing with a default");
        check(cache.incr("count", 5) == 15, "incr");
        check(cache.decr("count", 20) == 0, "decr");
        check(cache.delete("greeting").get(), "delete");
        check(cache.get("greeting") == null, "get of the deleted");
    }

    private static void many(MemcachedClient cache) throws Exception {
        List<Future<Boolean>> stored = new ArrayList<>();
        for (int number = 0; number < RECORDS; number++) {
            String key = "j" + number;
            stored.add(cache.set(key, 1000, value(key)));
            if (stored.size() == 1000) {
                for (Future<Boolean> one : stored) {
                    check(one.get(), "set of many");
                }
                stored.clear();
            }
        }
        for (int from = 0; from < RECORDS; from += 1000) {
            List<String> keys = new ArrayList<>();
            for (int number = from; number < from + 1000; number++) {
                keys.add("j" + number);
            }
            var found = cache.getBulk(keys);
            for (String key : keys) {
                check(value(key).equals(found.get(key)), key + " is lost or wrong");
            }
        }
    }
}
