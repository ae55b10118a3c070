use super::*;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Echoes the path; `/slow` takes until the test ends.
struct Echo(Arc<AtomicBool>);

impl Pages for Echo {
    async fn answer(&self, request: Request) -> Response {
        while request.uri().path() == "/slow" && !self.is_stopping() {
            sleep(Duration::from_millis(10)).await;
        }
        let path = Bytes::from(request.uri().path().to_string());
        Response::new(Body::Whole(Full::new(path)))
    }

    fn is_stopping(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

struct Running {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Running {
    fn start(connections_max: usize) -> Self {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let (address, stop) = (socket.local_addr().unwrap(), Arc::<AtomicBool>::default());
        let pages = Echo(Arc::clone(&stop));
        let serve = move || serve(Listening::Tcp(socket), connections_max, pages);
        Self { address, stop, thread: Some(std::thread::spawn(serve)) }
    }

    fn send(&self, text: &str) -> TcpStream {
        let mut client = TcpStream::connect(self.address).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        client.write_all(text.as_bytes()).unwrap();
        client
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().unwrap();
        thread.join().unwrap().unwrap();
    }
}

fn receive(mut client: TcpStream) -> String {
    let mut text = String::new();
    // Closed with something unread is an error, and the end all the same.
    let _ = client.read_to_string(&mut text);
    text
}

#[test]
fn full_page_closes_the_oldest_without_a_request() {
    let server = Running::start(3);
    let slow = server.send("GET /slow HTTP/1.1\r\n\r\n");
    // Without the pause the request of a connection may come after the next connection.
    std::thread::sleep(Duration::from_millis(300));
    let (oldest, second) = (server.send(""), server.send("GET /second HT"));
    let answer = receive(server.send("GET /new HTTP/1.1\r\n\r\n"));
    assert!(answer.ends_with("\r\n\r\n/new"), "{answer}");
    assert_eq!(receive(oldest), "");
    (&second).write_all(b"TP/1.1\r\n\r\n").unwrap();
    assert!(receive(second).ends_with("/second"));
    drop(server);
    // The server stopped: its connections ended with it.
    assert!(!receive(slow).contains("408"));
}

#[test]
fn one_connection_has_one_request() {
    let server = Running::start(3);
    let answer = receive(server.send("GET /a HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r\n"));
    assert_eq!(answer.matches("HTTP/1.1 200").count(), 1, "{answer}");
    assert!(answer.contains("connection: close") && answer.ends_with("/a"), "{answer}");
    let head = receive(server.send("HEAD /a HTTP/1.1\r\n\r\n"));
    assert!(head.contains("content-length: 2") && head.ends_with("\r\n\r\n"), "{head}");
}
