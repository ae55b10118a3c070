//! Other ways to a server than TCP.

mod common;

use common::Memcached;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use terrace_load::{Client, Plan, Protocol, Sizes, Tls, Workload};

fn fills_and_verifies(server: &Memcached, plan: &Plan) {
    let fill = server.run(plan);
    assert_eq!((fill.stored, fill.errors), (20_001, 0), "{:?}", fill.examples);
    let read = server.run(&Plan { workload: Workload::Verify, ..plan.clone() });
    assert_eq!((read.hits, read.misses, read.wrong), (20_001, 0, 0), "{:?}", read.examples);
}

#[test]
fn a_unix_socket() {
    let Some(server) = Memcached::on_a_unix_socket("a_unix_socket") else { return };
    fills_and_verifies(&server, &server.plan(Workload::Fill));
    let stats = Client::open(&server.address, None).unwrap().stats("").unwrap();
    assert_eq!(stats["pid"], server.child.id().to_string());
}

#[test]
fn tls_with_a_known_and_with_any_certificate() {
    const TEST: &str = "tls_with_a_known_and_with_any_certificate";
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["cache.example".into()]).unwrap();
    let certificate = params.signed_by(&key, &ca).unwrap();
    std::fs::write(path("chain.pem"), certificate.pem()).unwrap();
    std::fs::write(path("key.pem"), key.serialize_pem()).unwrap();
    std::fs::write(path("ca.pem"), ca.pem()).unwrap();
    let options = format!(
        "ssl_chain_cert={},ssl_key={}",
        path("chain.pem").display(),
        path("key.pem").display()
    );
    let able = std::process::Command::new("memcached").arg("-h").output();
    if !able.is_ok_and(|help| String::from_utf8_lossy(&help.stdout).contains("ssl_chain_cert")) {
        terrace_e2e::skip(TEST, "memcached has no TLS");
        return;
    }
    let Some(server) = Memcached::start(TEST, &["-Z", "-o", &options]) else { return };
    // No more in flight than memcached 1.6.18 has room for: with TLS it forgets what is beyond that.
    for (value, depth, protocol) in
        [(80, 7, Protocol::Ascii), (1500, 7, Protocol::Binary), (40, 200, Protocol::Meta)]
    {
        let tls = Tls::trusting(&path("ca.pem"), Some("cache.example")).unwrap();
        let sizes = Sizes::Fixed { key: 20, value };
        let plan = server.plan(Workload::Fill);
        fills_and_verifies(&server, &Plan { tls: Some(tls), sizes, depth, protocol, ..plan });
    }
    let stats = |tls: Tls| Client::open(&server.address, Some(&tls))?.stats("");
    assert_eq!(stats(Tls::blind().unwrap()).unwrap()["pid"], server.child.id().to_string());
    let other = Tls::trusting(&path("ca.pem"), Some("other.example")).unwrap();
    assert!(stats(other).is_err(), "a certificate for another name");
    assert!(Tls::trusting(&path("key.pem"), None).is_err(), "no certificates in it");
}
