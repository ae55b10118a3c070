//! The same bytes sent to Terrace and to memcached must be answered alike.

mod common;

use common::memcached::Memcached;
use common::{Client, TestServer};
use terrace_e2e::skip;

/// Conversations; `K` stands for a key of their own, `|` for a line end. Where memcached 1.6.18 is
/// older than what Terrace stands in for, or pads numbers with blanks, there is no case here.
const CASES: &[&str] = &[
    "get K|",
    "set K 1 0 3|abc|get K|",
    "set K 1 0 3|abcd|get K|",
    "set K 1 0 3 noreply|abcd|get K|",
    "set K 1 0 3|abcdef|get K|",
    "set K 1 0 3|ab|get K||",
    "set K 1 0 -1|get K|",
    "set K 1 0 x|get K|",
    "set K x 0 1|a|get K|",
    "set K 4294967295 0 1|a|get K|",
    "set K -1 0 1|a|get K|",
    "set K 0 x 1|a|get K|",
    "set K 0 -1 1|a|get K|",
    "set K 0 0 1 noreply|a|get K|",
    "set K 0 0 1 bogus|a|get K|",
    "set K 0 0|",
    "set K 0 0 0||get K|",
    "add K 0 0 1|a|add K 0 0 1|b|get K|",
    "replace K 0 0 1|a|set K 0 0 1|z|replace K 5 0 1|b|get K|",
    "append K 0 0 1|a|set K 3 0 1|z|append K 5 0 2|bc|prepend K 0 0 1|y|get K|",
    "cas K 0 0 1 1|a|",
    "set K 0 0 1|a|cas K 0 0 1 0|b|get K|",
    "cas K 0 0 1|a|",
    "cas K 0 0 1 x|a|",
    "set K 0 0 2|10|incr K 1|incr K 100|decr K 11|get K|",
    "set K 0 0 1|x|incr K 1|decr K 1|",
    "set K 0 0 2|1x|incr K 1|",
    "set K 0 0 2|1 |incr K 1|",
    "set K 0 0 2|-1|incr K 1|",
    "set K 0 0 0||incr K 1|",
    "incr K 1|decr K 1|",
    "incr K x|incr K|incr K -1|incr K 1 noreply|incr K 1 2|",
    "incr K 18446744073709551616|",
    "touch K 0|set K 0 0 1|a|touch K 10|touch K x|touch K|touch K 10 noreply|mg K t|",
    "touch K -1|set K 0 0 1|a|touch K -1|get K|",
    "gat 10 K|set K 0 0 1|a|gat 10 K|mg K t|",
    "gat K|gat|gat x K|gat 10|gats 0|gat 0 |gat 10 none none|",
    "touch K 9999999999|gat 9999999999 K|gat 4294967296 K|set K 0 9999999999 1|a|",
    "mg K T9999999999|ms K 1 T9999999999|a|",
    "delete K|set K 0 0 1|a|delete K|get K|",
    "delete K noreply|delete|delete K 0|",
    "get|gets|get |get K K||",
    "set K 0 0 1|a|get K K K none|",
    "bogus|BOGUS|| |get|",
    "verbosity|verbosity 0|verbosity x|verbosity 1 2 3|verbosity noreply|verbosity 0 noreply|",
    "flush_all 0|flush_all x|flush_all noreply|flush_all 0 noreply|flush_all -1|",
    "flush_all 0 x|flush_all 0 noreply noreply|flush_all noreply noreply|flush_all x y|",
    "set K 0 0 1|a|flush_all 0 1 2|flush_all 0 x noreply|get K|",
    "verbosity 0 0 noreply|cache_memlimit 64 64|cache_memlimit 64 64 64|",
    "cache_memlimit 64 64 noreply|cache_memlimit 64 noreply|cache_memlimit x noreply|",
    "slabs automove 0 noreply|slabs automove noreply|slabs automove x noreply|slabs x noreply|",
    "slabs automove ratio 0.8 noreply|slabs reassign 1 noreply|slabs reassign 1 2 noreply|",
    "lru mode flat noreply|lru temp_ttl 100 noreply|lru x noreply|lru_crawler sleep 1 noreply|",
    "extstore noreply|extstore x noreply|",
    "set K 0 0 1|a|flush_all|get K|",
    "cache_memlimit|cache_memlimit 1|cache_memlimit x|cache_memlimit 64|",
    "slabs|slabs reassign 1|slabs automove 1|slabs automove 9|slabs automove|",
    "slabs reassign a b|slabs reassign 1 1|slabs reassign -1 5|slabs reassign 1 2|",
    "slabs reassign 99 1|slabs reassign 1 99|slabs reassign 1 2 3|slabs x y|",
    "slabs automove -1|slabs automove x|slabs automove 0|slabs automove 1 2|",
    "slabs automove ratio 0.8|slabs automove ratio 5|slabs automove ratio x|",
    "lru|lru mode flat|lru mode segmented|lru mode x|lru temp_ttl 100|lru x|",
    "lru tune 10 20 0.1 2.0|lru tune 90 90 0.1 2.0|lru tune|lru tune a b c d|",
    "lru tune 0 20 0.1 2|lru tune 10 20 0 2.0|lru tune 10 20 0.1|lru temp_ttl -1|lru temp_ttl x|",
    "lru_crawler|lru_crawler sleep 100|lru_crawler sleep 10000000|lru_crawler tocrawl 5|",
    "lru_crawler sleep x|lru_crawler tocrawl x|lru_crawler tocrawl|lru_crawler enable x|",
    "lru_crawler crawl|lru_crawler crawl 99|lru_crawler crawl x|lru_crawler metadump|",
    "extstore|extstore x|extstore x 1|cache_memlimit 7|cache_memlimit 1000000001|",
    "stats bogus|stats sizes|stats reset|stats detail|stats detail x|stats cachedump|",
    "stats noreply|",
    "mg K|mg K v k O123|mg K q k|mn|",
    "ms K 3|abc|mg K v|mg K|mg K s v t f k O1|",
    "ms K 3 k O9 T100 F7|abc|mg K s v t f k O1 h l|mg K h|mg K h|",
    "ms K 3 q|abc|mg K v|",
    "ms K S3|abc|mg K v|",
    "ms K 2|abc|mg K v|",
    "ms K 2|abcdef|mg K v|",
    "ms K -2|mg K v|",
    "ms K|ms|ms K x|",
    "ms K 1 X|a|mg K|",
    "ms K 1 T0 T0|a|mg K|",
    "ms K 1 ME|a|ms K 1 ME|a|ms K 1 ME k O1|a|",
    "ms K 1 MR|a|ms K 1 MA|a|ms K 1 MP|a|ms K 1 MS|a|ms K 1 MA|b|ms K 1 MP|c|mg K v s|",
    "ms K 1 MX|a|ms K 1 M|a|ms K 1 MSS|a|ms K 1 Ms|a|",
    "ms K 1 C1|a|ms K 1|a|ms K 1 C1|b|ms K 1 C1 q k|b|",
    "ms K 1|a|ms K 1 MA C0|b|ms K 1 MP C0|c|mg K v|ms K 1 C0|d|mg K v|",
    "ms K 1|1|ma K C0 v|ma K C1 v|",
    "ms YR== 2 b|hi|mg YQ== b v|",
    "ms K 1 MA C5|a|ms K 1 MR C5|a|ms K 1 ME C5|a|ms K 1 ME C5|a|",
    "md K|ms K 1|a|md K q|md K q|md K k O1|mg K|",
    "ms K 1 T100|a|md K I|mg K v t|mg K v t|mg K v t|",
    "ms K 1|a|md K I|touch K 100|gat 200 K|mg K|mg K|",
    "mg K t N30|mg K t|",
    "mg K N30 T100 t|mg K t|",
    "mg K T100 N30 t|mg K t|",
    "delete noreply|set noreply 0 0 1|a|delete noreply|delete noreply noreply|",
    "ms K 1 T100|a|md K I T30|mg K v t|ms K 1|b|mg K v t|",
    "ms K 1 T100|a|md K T30|mg K|",
    "mg K N30|mg K N30|mg K v t N30 s k|ms K 1|x|mg K v|",
    "mg K N30 v t s f h l k O5|mg K v|",
    "ms K 1 T20|a|mg K R30 t|mg K R30 t|mg K R10|",
    "ms K 1|a|mg K R30 t|",
    "ms K 1 T10|a|mg K T100 R30 t|mg K R200 T20 t|mg K R30 t|",
    "ms K 1|a|mg K T10 R30 t|mg K t|",
    "ms K 1 T10|a|mg K T-1 R30|mg K|",
    "ms K 1 T10|a|mg K R2592001|mg K R-1|mg K R0|mg K R2592000|",
    "ms K 1 T10|a|mg K R10|mg K R2147483647|",
    "ms K 1 T20|a|mg K T100 t v|mg K t T50|mg K t|mg K T-1|mg K|",
    "mg K T30 q|mg K T30|",
    "ma K|ma K N0|ma K|ma K v|ma K D10 v t k O1|",
    "ma K N30 J10 v t|ma K MI v|ma K M+ v|ma K M- D100|ma K MD|",
    "ma K q|ma K N0|ma K q v|mg K v|",
    "ms K 1|x|ma K|ma K v|",
    "ma K N30 J1|ma K T99 t|",
    "ms K 1|a|mg K N30 h|mg K h|ms K 1|b|mg K T50 u h|mg K h u|ms K 1|c|mg K R30 h|mg K h|",
    "ms K 1|a|touch K 100|mg K h|ms K 1|b|gat 100 K|mg K h|ms K 1|c|get K|touch K 50|mg K h|",
    "ms K 1 T100|a|md K I|mg K h|mg K h|ms K 1|b|md K I T30|mg K u h|mg K h|mg K h|",
    "ma K N0 J1 T60|mg K t|md K q|ma K N30 T600 t|md K q|ma K T600 N30 t|",
    "ma K MX|ma K X|ma K T1 T1|",
    "mg K X|mg K v v|mg K Tx|mg K S5|",
    "mg K O12345678901234567890123456789012345|mg K O1234567890123456789012345678901|",
    "mg K O12345678901234567890123456789012|",
    "mg|md|ma|me|mx K|me K|",
    "ms Zm9v 1 b k|a|mg Zm9v b v k|md Zm9v b k|ma Zm9v b k N0 J5|md foo|",
    "mg Zm9 b|",
    "mg K P1 L1 v|ms K 1 P1 L5|a|mg K P1 v|",
    "ms K 1 I|a|mg K v|",
    "ms K 1 F1|a|ms K 1 MA F9|b|mg K f v|",
    "set K 0 0 1|a|mg K h t l|mg K u h|mg K u h|mg K h|mg K h|",
    "set K 0 100000000 1|a|get K|",
    "set K 0 2592000 1|a|mg K t|",
    "set K 0 2147483647 1|a|get K|",
    "mg K N-1|mg K|",
    "mg K N0 t|mg K t|",
    "GET K|Set K 0 0 1|a|",
    " get K|get  K|set  K  0  0  1|a|get K|",
];

const TRIES: usize = 4;

#[test]
fn memcached_says_the_same() {
    let Some(memcached) = Memcached::start(&[]) else {
        skip("memcached_says_the_same", "memcached is not installed; make tools");
        return;
    };
    let terrace = TestServer::start();
    let mut differences = Vec::new();
    for (number, case) in CASES.iter().enumerate() {
        // The clocks of the two tick at different moments: times to live may differ by a second then,
        // but not every time.
        let tries = (0..TRIES).map(|attempt| {
            let key = format!("key{number}-{attempt}");
            let request = case.replace('K', &key).replace('|', "\r\n");
            [terrace.address, memcached.address].map(|address| {
                let mut client = Client::connect(address);
                client.send(format!("{request}mn\r\n"));
                client.receive_until("MN\r\n")
            })
        });
        let mut tries = tries.take_while(|[ours, theirs]| ours != theirs).collect::<Vec<_>>();
        if tries.len() == TRIES {
            let [ours, theirs] = tries.remove(0);
            differences.push(format!("{case}\n  terrace   {ours:?}\n  memcached {theirs:?}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// What is done one after the other, and counted by both; all that count reads.
const COUNTED: &[&str] = &[
    "set h 0 100 1|1|",
    "get h m|gets h|gat 0 h|gat 0 m|gats 0 h m|touch h 0|touch m 0|",
    "mg h|mg m|mg h T0|mg m T0|mg a N0|mg h N0|mg h t v T100 N30|",
    "ma b N0|ma b N0|ma c|incr h 1|incr m 1|decr h 1|decr m 1|",
    "cas h 0 0 1 1|1|cas m 0 0 1 1|1|delete b|delete m|md m|md a|",
    "md h I|md h C1|md h C1 I|md m C1|md h I q|mg h|",
];
const COUNTERS: &str = "cmd_get cmd_set cmd_touch get_hits get_misses touch_hits touch_misses incr_hits \
    incr_misses decr_hits decr_misses cas_hits cas_misses cas_badval delete_hits delete_misses";

#[test]
fn memcached_counts_the_same() {
    let Some(memcached) = Memcached::start(&[]) else {
        skip("memcached_counts_the_same", "memcached is not installed; make tools");
        return;
    };
    let terrace = TestServer::start();
    let [mut ours, mut theirs] = [terrace.address, memcached.address].map(Client::connect);
    for case in COUNTED {
        let [ours, theirs] = [&mut ours, &mut theirs].map(|client| {
            client.send(format!("{}mn\r\n", case.replace('|', "\r\n")));
            client.receive_until("MN\r\n");
            COUNTERS
                .split_whitespace()
                .map(|name| (name, client.stat("", name)))
                .collect::<Vec<_>>()
        });
        assert_eq!(ours, theirs, "{case}");
    }
}
