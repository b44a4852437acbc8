//! Requests, as many as there can be, over connections that are kept; and one at a time.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use serde::Serialize;

/// So many objects are asked for.
const OBJECTS: usize = 200;
const PATIENCE: Duration = Duration::from_secs(10);

/// How a server is asked.
pub(crate) struct Load {
    /// `HOST:PORT`.
    pub(crate) address: String,
    /// At a time.
    pub(crate) connections: usize,
    /// For how long.
    pub(crate) time: Duration,
}

/// What was measured once.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sample {
    /// Requests a second.
    pub(crate) rate: f64,
    /// Half of the requests took less, in milliseconds.
    pub(crate) p50: f64,
    /// Ninety-nine of a hundred did.
    pub(crate) p99: f64,
}

/// The headers of an answer, by their names in lower case.
pub(crate) type Headers = BTreeMap<String, String>;

impl Load {
    /// Every object once, so that all that follows are hits.
    pub(crate) fn warm_up(&self) -> Result<()> {
        let mut connection = self.connect()?;
        for object in 0..OBJECTS {
            ask(&mut connection, &path(object))?;
        }
        let answer = ask(&mut connection, &path(0))?;
        match answer.get("x-cache-status").map(String::as_str) {
            Some("HIT") => Ok(()),
            other => bail!("an object that was asked for before is no hit, but {other:?}"),
        }
    }

    /// One request over a connection of its own.
    pub(crate) fn once(&self, object: usize) -> Result<Headers> {
        ask(&mut self.connect()?, &path(object))
    }

    /// As many requests as there can be.
    pub(crate) fn run(&self) -> Result<Sample> {
        let begun = Instant::now();
        let times = thread::scope(|scope| {
            let clients: Vec<_> =
                (0..self.connections).map(|client| scope.spawn(move || self.client(client, begun))).collect();
            let times =
                clients.into_iter().map(|client| client.join().unwrap_or_else(|_| bail!("a client died")));
            times.collect::<Result<Vec<_>>>()
        })?;
        let elapsed = begun.elapsed().as_secs_f64();
        let mut times = times.concat();
        times.sort_unstable();
        let at = |part: f64| {
            let index = (times.len() as f64 * part) as usize;
            times.get(index).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
        };
        Ok(Sample { rate: times.len() as f64 / elapsed, p50: at(0.5), p99: at(0.99) })
    }

    fn client(&self, client: usize, begun: Instant) -> Result<Vec<Duration>> {
        let mut connection = self.connect()?;
        let mut times = Vec::new();
        let mut object = client * 31;
        while begun.elapsed() < self.time {
            object = (object + 1) % OBJECTS;
            let asked = Instant::now();
            ask(&mut connection, &path(object))?;
            times.push(asked.elapsed());
        }
        Ok(times)
    }

    fn connect(&self) -> Result<BufReader<TcpStream>> {
        let stream =
            TcpStream::connect(&self.address).with_context(|| format!("cannot reach {}", self.address))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(BufReader::with_capacity(64 << 10, stream))
    }
}

fn path(object: usize) -> String {
    format!("/live/object-{object}")
}

/// Asks for one object; anything but 200 is an error.
fn ask(connection: &mut BufReader<TcpStream>, path: &str) -> Result<Headers> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: cdn.example\r\n\r\n");
    connection.get_mut().write_all(request.as_bytes())?;
    let mut line = String::new();
    connection.read_line(&mut line)?;
    if !line.starts_with("HTTP/1.1 200 ") {
        bail!("{path} was answered with {:?}", line.trim());
    }
    let mut headers = Headers::new();
    loop {
        line.clear();
        connection.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_lowercase(), value.trim().to_owned());
    }
    let length: u64 =
        headers.get("content-length").and_then(|length| length.parse().ok()).context("no length")?;
    let read = std::io::copy(&mut connection.by_ref().take(length), &mut std::io::sink())?;
    if read < length {
        bail!("{path} ended after {read} of {length} bytes");
    }
    Ok(headers)
}
