//! The server as a process: what it answers, and how it ends.
#![allow(clippy::unwrap_used, reason = "a test says what is wrong by ending")]

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

struct Gordon {
    process: Child,
    port: u16,
}

impl Gordon {
    fn start() -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_gordon"))
            .env("PORT", "0")
            .env("POD_NAME", "sample-0")
            .env("GORDON_NAME", "sample")
            .env("NAMESPACE", "default")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let rest = line.strip_prefix("listening on port ").unwrap();
        let (port, said) = rest.split_once(": ").unwrap();
        assert_eq!("I am sample-0, one of the Gordons of sample.\n", said);
        Self { port: port.parse().unwrap(), process }
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.port)).unwrap()
    }

    /// The status line and the body.
    fn ask(&self, path: &str, accept: &str) -> (String, String) {
        let mut stream = self.connect();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\nConnection: close\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.lines().next().unwrap().to_owned(), body.to_owned())
    }

    /// Sends SIGTERM; how it ended, and how long that took.
    fn stop(mut self) -> (Option<i32>, Duration) {
        let begun = Instant::now();
        kill(Pid::from_raw(self.process.id().cast_signed()), Signal::SIGTERM).unwrap();
        (self.process.wait().unwrap().code(), begun.elapsed())
    }
}

impl Drop for Gordon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn it_introduces_itself_in_text_and_json_and_is_healthy() {
    let gordon = Gordon::start();
    let ok = "HTTP/1.1 200 OK".to_owned();
    let text = "I am sample-0, one of the Gordons of sample.\n".to_owned();
    assert_eq!((ok.clone(), text), gordon.ask("/", "*/*"));
    let json = r#"{"pod":"sample-0","gordon":"sample","namespace":"default"}"#.to_owned();
    assert_eq!((ok.clone(), json), gordon.ask("/", "application/json"));
    assert_eq!((ok, "ok\n".to_owned()), gordon.ask("/healthz", "*/*"));
    assert_eq!("HTTP/1.1 404 Not Found", gordon.ask("/elsewhere", "*/*").0);
    assert_eq!(Some(0), gordon.stop().0);
}

#[test]
fn it_ends_at_once_when_told_even_with_connections_open() {
    let gordon = Gordon::start();
    let _idle = gordon.connect();
    let mut unfinished = gordon.connect();
    unfinished.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let (code, took) = gordon.stop();
    assert_eq!(Some(0), code);
    assert!(took < Duration::from_secs(3), "{took:?}");
}

#[test]
fn a_port_that_is_taken_is_an_error_that_names_it() {
    let gordon = Gordon::start();
    let output =
        Command::new(env!("CARGO_BIN_EXE_gordon")).env("PORT", gordon.port.to_string()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(Some(1), output.status.code());
    assert!(said.starts_with(&format!("error: cannot listen on port {}: ", gordon.port)), "{said}");
}
