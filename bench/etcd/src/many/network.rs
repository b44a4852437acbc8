//! [`Network`]: a socket behind which all simulated members are.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::{Context as _, Result};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::{UnixListener, UnixStream},
    task::JoinHandle,
};

use super::crowd::Crowd;

/// The socket; whoever connects says first whom they want to speak with. It ends with this.
pub(super) struct Network {
    socket: PathBuf,
    dialled: Arc<AtomicU64>,
    listening: JoinHandle<()>,
}

impl Network {
    /// Listens in that folder.
    pub(super) fn open(crowd: Crowd, folder: &Path) -> Result<Self> {
        let socket = folder.join("members");
        let listener =
            UnixListener::bind(&socket).with_context(|| format!("cannot listen at {}", socket.display()))?;
        let dialled = Arc::<AtomicU64>::default();
        let counter = dialled.clone();
        let listening = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counter.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(connect(crowd.clone(), stream));
            }
        });
        Ok(Self { socket, dialled, listening })
    }

    /// Where it is.
    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// How many connections there were so far.
    pub(super) fn dialled(&self) -> u64 {
        self.dialled.load(Ordering::Relaxed)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

/// Answers 1 if the member is there, and then as that member.
async fn connect(crowd: Crowd, stream: UnixStream) {
    let mut stream = BufReader::new(stream);
    let mut address = String::new();
    if stream.read_line(&mut address).await.is_err() {
        return;
    }
    let address = address.trim().to_owned();
    let Some((number, members)) =
        crowd.members_at(&address).filter(|(_, members)| members.answers_at(&address))
    else {
        // Whoever asked has gone, or is told.
        let _ = stream.write_u8(0).await;
        return;
    };
    if stream.write_u8(1).await.is_err() {
        return;
    }
    let before = members.changes();
    members.clone().serve(address, stream).await;
    // Who has a vote decides who is ready.
    if members.changes() != before {
        crowd.look_at(number);
    }
}
