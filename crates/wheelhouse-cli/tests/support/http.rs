//! A small client: one request at a time, over a connection that is kept.

use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    sync::Arc,
    time::Duration,
};

const PATIENCE: Duration = Duration::from_secs(20);

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Answer {
    /// A header, by its name in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// Where requests go to.
#[derive(Clone)]
pub(crate) struct Server {
    /// `HOST:PORT`.
    pub(crate) address: String,
    /// The name by which it is asked.
    pub(crate) name: String,
    /// Whom to trust, if TLS is spoken.
    pub(crate) tls: Option<Arc<rustls::ClientConfig>>,
}

impl Server {
    /// One that speaks HTTP.
    pub(crate) fn new(address: &str) -> Self {
        Self { address: address.to_owned(), name: "cdn.example".to_owned(), tls: None }
    }

    /// One that has one of these certificates.
    pub(crate) fn with_tls(
        address: &str,
        certificates: &[rustls::pki_types::CertificateDer<'static>],
    ) -> Self {
        let mut trusted = rustls::RootCertStore::empty();
        for certificate in certificates {
            trusted.add(certificate.clone()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(trusted)
            .with_no_client_auth();
        Self { tls: Some(Arc::new(config)), ..Self::new(address) }
    }

    fn connect(&self) -> io::Result<Connection> {
        let stream = TcpStream::connect(&self.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let Some(config) = &self.tls else { return Ok(Connection::new(Box::new(stream))) };
        let name = self.name.clone().try_into().map_err(io::Error::other)?;
        let mut session = rustls::ClientConnection::new(config.clone(), name).map_err(io::Error::other)?;
        let mut stream = stream;
        while session.is_handshaking() {
            session.complete_io(&mut stream)?;
        }
        let certificate = session.peer_certificates().map(|chain| chain[0].to_vec());
        let mut connection = Connection::new(Box::new(rustls::StreamOwned::new(session, stream)));
        connection.certificate = certificate;
        Ok(connection)
    }

    /// The certificate that it shows to a new connection.
    pub(crate) fn certificate(&self) -> io::Result<Vec<u8>> {
        Ok(self.connect()?.certificate.unwrap_or_default())
    }
}

trait Stream: io::Read + io::Write + Send {}
impl<T: io::Read + io::Write + Send> Stream for T {}

/// A connection that is kept.
pub(crate) struct Connection {
    stream: BufReader<Box<dyn Stream>>,
    certificate: Option<Vec<u8>>,
}

impl Connection {
    fn new(stream: Box<dyn Stream>) -> Self {
        Self { stream: BufReader::new(stream), certificate: None }
    }
}

/// One request over a connection of its own.
pub(crate) fn get(address: &str, path: &str) -> io::Result<Answer> {
    fresh(&mut None, &Server::new(address), path)
}

/// One request over a connection that may be there, and whether it was sent again because
/// that one closed before any byte came.
pub(crate) fn get_over(
    connection: &mut Option<Connection>,
    server: &Server,
    path: &str,
) -> (io::Result<Answer>, bool) {
    if let Some(mut known) = connection.take() {
        match exchange(&mut known.stream, server, path) {
            Ok(answer) => {
                *connection = kept(known, &answer);
                return (Ok(answer), false);
            }
            Err(Broken::BeforeAnyByte(_)) => return (fresh(connection, server, path), true),
            Err(Broken::Later(error)) => return (Err(error), false),
        }
    }
    (fresh(connection, server, path), false)
}

fn fresh(connection: &mut Option<Connection>, server: &Server, path: &str) -> io::Result<Answer> {
    let mut new = server.connect()?;
    let answer = exchange(&mut new.stream, server, path).map_err(|broken| match broken {
        Broken::BeforeAnyByte(error) | Broken::Later(error) => error,
    })?;
    *connection = kept(new, &answer);
    Ok(answer)
}

fn kept(connection: Connection, answer: &Answer) -> Option<Connection> {
    (answer.header("connection") != Some("close")).then_some(connection)
}

enum Broken {
    BeforeAnyByte(io::Error),
    Later(io::Error),
}

fn exchange(
    connection: &mut BufReader<Box<dyn Stream>>,
    server: &Server,
    path: &str,
) -> Result<Answer, Broken> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", server.name);
    let sent = connection.get_mut().write_all(request.as_bytes());
    sent.and_then(|()| connection.get_mut().flush()).map_err(Broken::BeforeAnyByte)?;
    let mut line = String::new();
    match connection.read_line(&mut line) {
        Ok(0) => return Err(Broken::BeforeAnyByte(io::ErrorKind::UnexpectedEof.into())),
        Ok(_) => {}
        Err(error) if line.is_empty() && has_closed(&error) => return Err(Broken::BeforeAnyByte(error)),
        Err(error) => return Err(Broken::Later(error)),
    }
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    rest(connection, status).map_err(Broken::Later)
}

/// Whether the other side closed the connection, properly or not.
fn has_closed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof)
}

fn rest(connection: &mut BufReader<Box<dyn Stream>>, status: u16) -> io::Result<Answer> {
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        connection.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.push((name.to_lowercase(), value.trim().to_owned()));
    }
    let mut answer = Answer { status, headers, body: String::new() };
    let mut body = Vec::new();
    if answer.header("transfer-encoding") == Some("chunked") {
        loop {
            let mut line = String::new();
            connection.read_line(&mut line)?;
            let size = u64::from_str_radix(line.trim(), 16).unwrap_or(0);
            connection.by_ref().take(size).read_to_end(&mut body)?;
            connection.read_line(&mut String::new())?;
            if size == 0 {
                break;
            }
        }
    } else {
        let length = answer.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        let read = connection.by_ref().take(length).read_to_end(&mut body)?;
        if (read as u64) < length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    answer.body = String::from_utf8_lossy(&body).into_owned();
    Ok(answer)
}
