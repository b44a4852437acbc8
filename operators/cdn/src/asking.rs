//! Asks the agent of a pod how it is: which configuration is served, which purges hold.

use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use wheelhouse::Probe;

use crate::{api::AgentState, layout};

/// An answer that is longer is not one of ours.
const ANSWER_AT_MOST: usize = 1 << 20;

/// The agent of a pod.
pub(crate) struct AskAgent {
    /// The pod's address.
    pub(crate) address: String,
    /// The pod's name.
    pub(crate) pod: String,
    /// An address can be somebody else's later.
    pub(crate) uid: Option<String>,
}

impl Probe for AskAgent {
    type Answer = AgentState;

    fn target(&self) -> String {
        format!("{} {}", self.address, self.uid.as_deref().unwrap_or_default())
    }

    fn time_out(&self) -> Duration {
        Duration::from_secs(3)
    }

    fn fresh_for(&self) -> Duration {
        Duration::from_secs(1)
    }

    async fn ask(&self) -> Result<Option<AgentState>, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let address = match self.address.contains(':') {
            true => format!("[{}]:{}", self.address, layout::AGENT_PORT),
            false => format!("{}:{}", self.address, layout::AGENT_PORT),
        };
        let stream = TcpStream::connect(&address).await.map_err(|error| text(&error))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| text(&error))?;
        tokio::spawn(connection);
        let request = http::Request::get("/state")
            .header(http::header::HOST, &address)
            .body(axum::body::Body::empty())
            .map_err(|error| text(&error))?;
        let answer = sender.send_request(request).await.map_err(|error| text(&error))?;
        let body = axum::body::Body::new(answer.into_body());
        let bytes = axum::body::to_bytes(body, ANSWER_AT_MOST).await.map_err(|error| text(&error))?;
        let state: AgentState = serde_json::from_slice(&bytes).map_err(|error| text(&error))?;
        match state.pod == self.pod {
            true => Ok(Some(state)),
            false => Err(format!("at {address} there is {}", state.pod)),
        }
    }
}
