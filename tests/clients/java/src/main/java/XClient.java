import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import net.rubyeye.xmemcached.GetsResponse;
import net.rubyeye.xmemcached.MemcachedClient;
import net.rubyeye.xmemcached.XMemcachedClientBuilder;
import net.rubyeye.xmemcached.auth.AuthInfo;
import net.rubyeye.xmemcached.command.BinaryCommandFactory;
import net.rubyeye.xmemcached.utils.AddrUtil;

/** xmemcached: usage: XClient HOST:PORT ascii|binary [USER PASSWORD] */
public final class XClient {
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
        // It finds its passwords by the name that belongs to the address of the connection.
        var given = AddrUtil.getOneAddress(arguments[0]);
        var server = new InetSocketAddress(given.getAddress().getHostName(), given.getPort());
        var settings = new XMemcachedClientBuilder(List.of(server));
        if (arguments[1].equals("binary")) {
            settings.setCommandFactory(new BinaryCommandFactory());
        }
        if (arguments.length > 2) {
            settings.addAuthInfo(server, AuthInfo.plain(arguments[2], arguments[3]));
        }
        settings.setOpTimeout(20_000);
        MemcachedClient cache = settings.build();
        try {
            single(cache);
            many(cache);
            check(!cache.getStats().isEmpty(), "stats");
            check(!cache.getVersions().isEmpty(), "version");
            cache.flushAll();
            check(cache.get("x1000") == null, "get after flush");
        } finally {
            cache.shutdown();
        }
        String protocol = arguments[1].replace("ascii", "ASCII") + (arguments.length > 2 ? ", SASL" : "");
        String exercised = "get, gets, multi-get, set, add, replace, append, prepend, cas, touch, incr, decr, delete, stats, version, flush_all";
        System.out.println("client | xmemcached | 2.4.9 | Java | " + protocol + " | " + exercised);
        System.out.println("xmemcached: " + RECORDS + " records and every command answered as expected");
    }

    private static void single(MemcachedClient cache) throws Exception {
        check(cache.set("greeting", 1000, "hello"), "set");
        check("hello".equals(cache.get("greeting")), "get");
        check(cache.get("nothing") == null, "get of nothing");
        check(!cache.add("greeting", 1000, "x"), "add");
        check(cache.replace("greeting", 1000, "hi"), "replace");
        GetsResponse<String> found = cache.gets("greeting");
        check(cache.cas("greeting", 1000, "two", found.getCas()), "cas");
        check(!cache.cas("greeting", 1000, "three", found.getCas()), "stale cas");
        check(cache.append("greeting", "!"), "append");
        check(cache.prepend("greeting", ">"), "prepend");
        check(">two!".equals(cache.get("greeting")), "get of the longer");
        check(cache.touch("greeting", 1000), "touch");
        check(cache.incr("count", 1, 10) == 10, "incr of nothing with a default");
        check(cache.incr("count", 5) == 15, "incr");
        check(cache.decr("count", 20) == 0, "decr");
        check(cache.delete("greeting"), "delete");
        check(cache.get("greeting") == null, "get of the deleted");
    }

    private static void many(MemcachedClient cache) throws Exception {
        for (int number = 0; number < RECORDS; number++) {
            String key = "x" + number;
            check(cache.set(key, 1000, value(key)), "set of many");
        }
        for (int from = 0; from < RECORDS; from += 500) {
            List<String> keys = new ArrayList<>();
            for (int number = from; number < from + 500; number++) {
                keys.add("x" + number);
            }
            Map<String, String> found = cache.get(keys);
            for (String key : keys) {
                check(value(key).equals(found.get(key)), key + " is lost or wrong");
            }
        }
    }
}
