//! Lines and what becomes of them. The answers to bad lines are those of a real memcached, asked over a
//! socket.

use terrace_protocol::{
    AdminKind, Arith, Delete, KEY_BYTES_MAX, Keys, MetaCommand, MetaMode, MetaRequest, Parse,
    Parser, Reject, Request, Store, Touch, Verb, reply,
};

fn parse(line: &[u8]) -> Parse<'_> {
    Parser::default().parse(line)
}

fn request(line: &str) -> Request<'_> {
    match parse(line.as_bytes()) {
        Parse::Request { request, consumed } if consumed == line.len() => request,
        other => panic!("{line:?}: {other:?}"),
    }
}

fn reject(line: &[u8]) -> Reject {
    match parse(line) {
        Parse::Reject(reject) => reject,
        other => panic!("{}: {other:?}", line.escape_ascii()),
    }
}

fn meta(line: &str) -> MetaRequest<'_> {
    match request(line) {
        Request::Meta(meta) => meta,
        other => panic!("{line:?}: {other:?}"),
    }
}

#[test]
fn classic_requests() {
    let store = Store {
        verb: Verb::Set,
        key: b"k",
        client_flags: 7,
        exptime: -1,
        value_bytes: 5,
        noreply: false,
    };
    assert_eq!(request("set k 7 -1 5\r\n"), Request::Store(store));
    assert_eq!(request("set k 7 -1 5\n"), Request::Store(store));
    assert_eq!(request("set k 7 -1 5 other\r\n"), Request::Store(store));
    let many = format!("set k 7 -1 5{}\r\n", " word".repeat(40));
    assert_eq!(request(&many), Request::Store(store));
    assert_eq!(request("set k 4294967303 4294967295 5\r\n"), Request::Store(store));
    let noreply = Store { noreply: true, ..store };
    assert_eq!(request("set k 7 -1 5 noreply\r\n"), Request::Store(noreply));
    assert_eq!(request("set k 7 -1 5 word noreply\r\n"), Request::Store(noreply));
    for (word, verb) in [
        ("add", Verb::Add),
        ("replace", Verb::Replace),
        ("append", Verb::Append),
        ("prepend", Verb::Prepend),
    ] {
        assert_eq!(
            request(&format!("{word} k 7 -1 5\r\n")),
            Request::Store(Store { verb, ..store })
        );
    }
    let cas = Store { verb: Verb::Cas(u64::MAX), ..store };
    assert_eq!(request("cas k 7 -1 5 18446744073709551615\r\n"), Request::Store(cas));
    assert_eq!(request("delete k\r\n"), Request::Delete(Delete { key: b"k", noreply: false }));
    for (words, noreply) in [("5", false), ("b c d e", false), ("0 noreply", true)] {
        let delete = Delete { key: b"k", noreply };
        assert_eq!(request(&format!("delete k {words}\r\n")), Request::Delete(delete));
    }
    let odd = Delete { key: b"noreply", noreply: false };
    assert_eq!(request("delete noreply\r\n"), Request::Delete(odd));
    let arith = Arith { key: b"n", increments: true, delta: 3, noreply: false };
    assert_eq!(request("incr n 3\r\n"), Request::Arith(arith));
    let arith = Arith { increments: false, noreply: true, ..arith };
    assert_eq!(request("decr n 3 noreply\r\n"), Request::Arith(arith));
    let touch = Touch { key: b"k", exptime: 9, noreply: false };
    assert_eq!(request("touch k 9\r\n"), Request::Touch(touch));
}

#[test]
fn gets_of_many_keys() {
    let keys = |line: &'static str| match request(line) {
        Request::Keys(Keys { kind, keys, is_last: true, .. }) => {
            (kind.with_cas, kind.touch, keys.map(|key| key.to_vec()).collect::<Vec<_>>())
        }
        other => panic!("{other:?}"),
    };
    let abc = || vec![b"a".to_vec(), b"b".to_vec(), b"c".to_vec()];
    assert_eq!(keys("get a b  c\r\n"), (false, None, abc()));
    assert_eq!(keys("gets a b c\r\n"), (true, None, abc()));
    assert_eq!(keys("gat 10 a b c\r\n"), (false, Some(10), abc()));
    assert_eq!(keys("gats -1 a b c\r\n"), (true, Some(-1), abc()));
}

#[test]
fn admin_requests() {
    let kind = |line: &'static str| match request(line) {
        Request::Admin(admin) => (admin.kind, admin.arguments.count(), admin.noreply),
        other => panic!("{other:?}"),
    };
    assert_eq!(kind("flush_all 10 noreply\r\n"), (AdminKind::FlushAll, 2, true));
    assert_eq!(kind("stats settings\r\n"), (AdminKind::Stats, 1, false));
    assert_eq!(kind("version\r\n"), (AdminKind::Version, 0, false));
    assert_eq!(kind("quit now\r\n"), (AdminKind::Quit, 1, false));
}

#[test]
fn meta_requests() {
    let get = meta("mg key v f Oabc R30 N60\r\n");
    assert_eq!((get.command, get.key.bytes()), (MetaCommand::Get, &b"key"[..]));
    assert!(get.flags.has(b'v') && get.flags.has(b'O') && !get.flags.has(b'q'));
    assert_eq!((get.flags.recache, get.flags.vivify), (30, 60));
    let order: Vec<_> = get.flags.iter().collect();
    assert_eq!(order, [&b"v"[..], b"f", b"Oabc", b"R30", b"N60"]);
    let set = meta("ms Zm9v 3 b T90 F5 MA C7 E9 I\r\n");
    assert_eq!((set.key.raw, set.key.bytes()), (&b"Zm9v"[..], &b"foo"[..]));
    assert_eq!(set.command, MetaCommand::Set { value_bytes: 3 });
    assert_eq!((set.flags.exptime, set.flags.client_flags), (90, 5));
    assert_eq!((set.flags.compare, set.flags.assign), (7, 9));
    assert_eq!(set.flags.mode, MetaMode::Append);
    let arith = meta("ma n M- D5 J100\r\n");
    assert_eq!((arith.flags.mode, arith.flags.delta), (MetaMode::Decrement, 5));
    assert_eq!(arith.flags.initial, 100);
    assert_eq!(meta("ma n\r\n").flags.delta, 1);
    assert_eq!(meta("md k q\r\n").command, MetaCommand::Delete);
    assert!(meta("me Zm9v b\r\n").key.is_base64());
    assert_eq!(request("mn\r\n"), Request::MetaNoop);
}

#[test]
fn bad_lines_get_memcacheds_answers() {
    let long = "k".repeat(251);
    let format = "CLIENT_ERROR bad command line format";
    let table: &[(&str, &str)] = &[
        ("", format),
        (" ", format),
        ("a", format),
        ("foo", "ERROR"),
        ("foo noreply", ""),
        ("GET a", "ERROR"),
        ("get", format),
        ("get ", format),
        ("gat", format),
        ("gat 10", format),
        ("gat x a", "CLIENT_ERROR invalid exptime argument"),
        ("gat 2147483648 a", "CLIENT_ERROR invalid exptime argument"),
        ("get LONG", format),
        ("get a LONG", format),
        ("delete", format),
        ("delete LONG", format),
        ("incr a", format),
        ("incr a x", "CLIENT_ERROR invalid numeric delta argument"),
        ("incr a -1", "CLIENT_ERROR invalid numeric delta argument"),
        ("incr a x f noreply", ""),
        ("touch a", format),
        ("touch a x", "CLIENT_ERROR invalid exptime argument"),
        ("touch a 2147483648", "CLIENT_ERROR invalid exptime argument"),
        ("mg", format),
        ("mg LONG", format),
        ("mg a v v", "CLIENT_ERROR duplicate flag"),
        ("mg a v v !", format),
        ("mg a S", "CLIENT_ERROR invalid flag"),
        ("mg a 5", "CLIENT_ERROR invalid flag"),
        ("mg zz O12345678901234567890123456789012", "CLIENT_ERROR opaque token too long"),
        ("mg zz b k", "CLIENT_ERROR error decoding key"),
        ("mg zz T", "CLIENT_ERROR bad token in command line format"),
        ("mg zz T4294967295", "CLIENT_ERROR bad token in command line format"),
        ("mg zz Fx", format),
        ("mg zz Fx Tx", "CLIENT_ERROR bad token in command line format"),
        ("mg zz Tx Fx", "CLIENT_ERROR bad token in command line format"),
        ("mg zz b Tx", "CLIENT_ERROR bad token in command line format"),
        ("mg zz Tx b", "CLIENT_ERROR error decoding key"),
        ("mg zz Dx", "CLIENT_ERROR invalid numeric delta value"),
        ("mg a a b c d e f g h i j k l m n o p q r s t", "CLIENT_ERROR options flags are too long"),
        ("md", format),
        ("ma", format),
        ("ma zz MX", "CLIENT_ERROR invalid mode for ma M token"),
        ("ma zz v v", "CLIENT_ERROR invalid or duplicate flag"),
        ("ma zz Dx", "CLIENT_ERROR invalid or duplicate flag"),
        ("ma zz N4294967295", "CLIENT_ERROR invalid or duplicate flag"),
        ("ma zz !", format),
        ("me", format),
        ("me k !", format),
        ("mx a", "ERROR"),
    ];
    for (line, expected) in table {
        let line = format!("{}\r\n", line.replace("LONG", &long));
        let reject = reject(line.as_bytes());
        let end = if expected.is_empty() { "" } else { "\r\n" };
        assert_eq!(String::from_utf8_lossy(reject.reply), format!("{expected}{end}"), "{line:?}");
        assert_eq!(
            (reject.consumed, reject.swallow, reject.close),
            (line.len(), 0, false),
            "{line:?}"
        );
    }
}

/// Whose length can be read.
#[test]
fn the_value_of_a_refused_store_is_dropped() {
    let long = "k".repeat(251);
    for verb in ["set", "add", "replace", "append", "prepend", "cas"] {
        for rest in ["LONG 0 0 9", "k x 0 9", "k -1 0 9", "k 0 x 9", "k 18446744073709551616 0 9"] {
            for (end, text) in [("", reply::BAD_FORMAT), (" 1 noreply", b"")] {
                let line = format!("{verb} {}{end}\r\n", rest.replace("LONG", &long));
                let reject = reject(line.as_bytes());
                assert_eq!(
                    (reject.reply, reject.swallow, reject.close),
                    (text, 11, false),
                    "{line}"
                );
            }
        }
    }
    for (line, text) in [
        ("cas k 0 0 9", reply::BAD_FORMAT),
        ("cas k 0 0 9 x", reply::BAD_FORMAT),
        ("cas k 0 0 9 18446744073709551616", reply::BAD_FORMAT),
        ("cas k 0 0 9 noreply", b""),
        ("ms LONG 9", reply::BAD_FORMAT),
        ("ms k 9 !", reply::BAD_FORMAT),
        ("ms k 9 Fx", reply::BAD_FORMAT),
        ("ms k 9 MX", reply::INVALID_MODE_SET),
        ("ms k 9 M", reply::INVALID_MODE_SET),
        ("ms k 9 S", reply::INVALID_FLAG),
        ("ms k 9 T1 T2", reply::DUPLICATE_FLAG),
        ("ms k 9 T2147483648", reply::BAD_TOKEN),
        ("ms k 9 b", reply::BAD_BASE64),
        ("ms k 9 O12345678901234567890123456789012", reply::OPAQUE_TOO_LONG),
        ("ms k 9 a b c d e f g h i j k l m n o p q r", reply::OPTIONS_TOO_LONG),
    ] {
        let line = format!("{}\r\n", line.replace("LONG", &long));
        let reject = reject(line.as_bytes());
        assert_eq!((reject.reply, reject.swallow, reject.close), (text, 11, false), "{line}");
    }
}

#[test]
fn a_store_without_a_readable_length_closes() {
    for line in [
        "set",
        "set k 0 0",
        "set  0 0 9",
        "set k 0 0 x",
        "set k 0 0 -1",
        "set k 0 0 2147483646",
        "cas k 0 0 9999999999 1",
        "append k 0 0 +9",
        "ms",
        "ms k",
        "ms k x",
        "ms k -1",
        "ms k S9",
        "set k 0 0 9noreply",
        "set k 0 0 x noreply",
    ] {
        let line = format!("{line}\r\n");
        let reject = reject(line.as_bytes());
        assert_eq!((reject.reply, reject.close), (reply::BAD_FORMAT, true), "{line}");
    }
}

#[test]
fn what_is_no_client_is_cut_off() {
    assert!(reject(b"GET / HTTP/1.1\r\n").close);
    assert!(reject(&[b'x'; 2049]).close);
    assert!(reject(&[&b"set "[..], &[b'x'; 2100]].concat()).close);
    assert_eq!(parse(&[b'x'; 2048]), Parse::NeedMore);
    // One endless key.
    assert!(reject(&[&b"get "[..], &[b'x'; 2100]].concat()).close);
}

/// The plainest forms are told sooner than others, and mean the same.
#[test]
fn plain_requests_mean_what_others_do() {
    for key in ["k", "eightlng", "exactly-20-bytes-key", &"x".repeat(KEY_BYTES_MAX)] {
        let (plain, other) = (format!("set {key} 7 9 80\r\n"), format!("set  {key} 7 9 80\r\n"));
        assert_eq!(request(&plain), request(&other));
        let (plain, other) = (format!("mg {key} v\r\n"), format!("mg  {key} v\r\n"));
        assert_eq!(meta(&plain), meta(&other));
        let (plain, other) = (format!("get {key}\r\n"), format!("get  {key}\r\n"));
        let (Request::Keys(plain), Request::Keys(other)) = (request(&plain), request(&other))
        else {
            panic!("{key}: not keys");
        };
        assert_eq!((plain.kind, plain.first), (other.kind, other.first));
        assert_eq!((plain.is_single, plain.is_last), (other.is_single, other.is_last));
    }
    let long = "x".repeat(KEY_BYTES_MAX + 1);
    for line in [format!("get {long}"), format!("mg {long} v"), format!("set {long} 0 0 1")] {
        assert_eq!(reject(format!("{line}\r\n").as_bytes()).reply, reply::BAD_FORMAT);
    }
}
