//! The etcd operator as it is, but that it reaches its members through a socket, behind which they are
//! simulated: `SIMULATED_MEMBERS` names it.

use std::{path::PathBuf, process::ExitCode, sync::Arc};

use etcd_operator::{
    EtcdClusters, Scope,
    etcd::{Dial, Stream},
};
use futures::future::BoxFuture;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
};

/// Where the simulated members are.
const VARIABLE: &str = "SIMULATED_MEMBERS";

/// Says whom it wants, hears whether somebody is there, and then speaks with them.
struct Through(PathBuf);

impl Dial for Through {
    fn dial(&self, address: &str) -> BoxFuture<'static, std::io::Result<Box<dyn Stream>>> {
        let (socket, address) = (self.0.clone(), format!("{address}\n"));
        Box::pin(async move {
            let mut stream = UnixStream::connect(socket).await?;
            stream.write_all(address.as_bytes()).await?;
            match stream.read_u8().await {
                Ok(1) => Ok(Box::new(stream) as Box<dyn Stream>),
                _ => Err(std::io::ErrorKind::ConnectionRefused.into()),
            }
        })
    }
}

fn main() -> ExitCode {
    let Some(socket) = std::env::var_os(VARIABLE) else {
        eprintln!("error: {VARIABLE} is not set: this is a part of bench-etcd");
        return ExitCode::FAILURE;
    };
    let dialer = Arc::new(Through(socket.into()));
    let operator = EtcdClusters { dialer, ..EtcdClusters::from_environment(Scope::OwnNamespace) };
    etcd_operator::manager_of(operator).main()
}
