//! Backups in a bucket of a real S3 server: that of `images/s3`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use etcd_operator::{
    api::backup::{Place, S3Place},
    backup::{Error, Mounts, Outcome, check, fetch, remove, save},
};
use rstest::rstest;
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::Notify,
};
use tokio_rustls::TlsAcceptor;
use wheelhouse::{
    certificates::{Authorities, Validity},
    jiff::Timestamp,
};
use wheelhouse_local::{images::Image, progress::Progress};
use wheelhouse_testing::{eventually, free_address, spawn_tethered};

use super::{
    etcd::Etcd,
    volume::{begun, content, refusal, removed, saving, saving_in},
};

struct Server {
    child: Child,
    address: String,
    folder: TempDir,
}

impl Server {
    async fn start() -> Self {
        let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let images = Image::all_of(&tree).unwrap();
        let image = images.iter().find(|image| image.name.starts_with("s3-")).unwrap();
        let program = image.program(&Progress::shown()).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("backups")).unwrap();
        let address = free_address().to_string();
        let prepare = |command: &mut std::process::Command| {
            command.args(["--addr", &address, "--auth-key", "KEY,SECRET"]);
            // What tests do to the files behind its back is to be seen.
            command.args(["--dir-cache-time", "0s"]).arg(folder.path());
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        };
        let child = spawn_tethered(&program, prepare).unwrap();
        eventually("the S3 server answers", async || std::net::TcpStream::connect(&address).is_ok()).await;
        Self { child, address, folder }
    }

    fn place(&self) -> Place {
        Place::S3(S3Place {
            path: "backups/etcd/db".to_owned(),
            aws_secret: "aws".to_owned(),
            endpoint: Some(format!("http://{}", self.address)),
            region: None,
            force_path_style: true,
            ca_secret: None,
        })
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("backups/etcd/db")
    }

    fn note(&self) -> PathBuf {
        self.folder.path().join("backups/etcd/db.json")
    }

    /// What there is in the bucket.
    fn files(&self) -> Vec<String> {
        let Ok(folder) = fs::read_dir(self.folder.path().join("backups/etcd")) else { return Vec::new() };
        let mut names: Vec<_> = folder.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a pod has mounted.
fn mounts(secret: &str) -> (TempDir, Mounts) {
    let folder = tempfile::tempdir().unwrap();
    let mounts = Mounts {
        aws: folder.path().join("aws"),
        authorities: folder.path().join("authorities"),
        volume: folder.path().join("volume"),
        scratch: folder.path().join("scratch"),
    };
    for folder in [&mounts.aws, &mounts.scratch] {
        fs::create_dir(folder).unwrap();
    }
    let credentials = format!("[default]\naws_access_key_id = KEY\naws_secret_access_key = {secret}\n");
    fs::write(mounts.aws.join("credentials"), credentials).unwrap();
    (folder, mounts)
}

#[tokio::test]
async fn a_backup_goes_to_s3_in_parts_and_comes_back_as_it_was() {
    let (etcd, server, (pod, mounts)) = (Etcd::start().await, Server::start().await, mounts("SECRET"));
    // More than one part.
    let revision = etcd.fill_with(24, 1 << 19).await;
    let place = server.place();
    let saved = content(save(&place, &mounts, &etcd.source(), &saving("uid")).await).unwrap();
    assert_eq!(saved.revision, revision);
    assert!(saved.size > 8 << 20, "{} bytes", saved.size);
    assert_eq!(server.files(), ["db", "db.json"]);
    assert_eq!(fs::metadata(server.file()).unwrap().len(), saved.size);
    assert_eq!(content(check(&place, &mounts).await).unwrap(), saved);
    let to = pod.path().join("restored");
    assert_eq!(content(fetch(&place, &mounts, &to, Some(&saved.sha256)).await).unwrap(), saved);
    assert_eq!(fs::read(&to).unwrap(), fs::read(server.file()).unwrap());

    let whole = fs::read(server.file()).unwrap();
    fs::write(server.file(), &whole[..whole.len() / 2]).unwrap();
    let said = refusal(fetch(&place, &mounts, &pod.path().join("half"), None).await);
    assert!(said.contains("the backup is truncated"), "{said}");
    assert!(!pod.path().join("half").exists());
    fs::write(server.file(), b"something else".repeat(10_000)).unwrap();
    assert!(refusal(check(&place, &mounts).await).contains("no snapshot of etcd's"));
    let again = content(save(&place, &mounts, &etcd.source(), &saving("uid")).await).unwrap();
    assert_eq!(again.revision, revision, "a backup that is not good any more is taken anew");

    let paths = vec![place.path().to_owned()];
    let gone = remove(&place, &mounts, "uid", paths, Vec::new()).await.unwrap();
    assert_eq!(gone, removed(&["backups/etcd/db"], &[]));
    assert_eq!(server.files(), [""; 0]);
    assert!(refusal(check(&place, &mounts).await).contains("there is no backup at backups/etcd/db"));
}

#[tokio::test]
async fn what_a_killed_pod_began_to_upload_is_taken_back() {
    let (etcd, server, (_pod, mounts)) = (Etcd::start().await, Server::start().await, mounts("SECRET"));
    let place = server.place();
    content(save(&place, &mounts, &etcd.source(), &saving("uid")).await).unwrap();
    let text = fs::read_to_string(server.note()).unwrap();
    let writing = text.replace("\"Whole\"", "\"Writing\", \"upload\": \"1\"");
    fs::write(server.note(), writing).unwrap();
    assert!(refusal(check(&place, &mounts).await).contains("never finished"));
    content(save(&place, &mounts, &etcd.source(), &saving("uid")).await).unwrap();
    content(check(&place, &mounts).await).unwrap();
}

/// The way to the server for somebody one of whose requests gets there only once that is told.
struct Held {
    place: Place,
    is_there: Arc<AtomicBool>,
    told: Arc<Notify>,
}

impl Held {
    async fn at(request: &'static str, server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let Place::S3(mut place) = server.place() else { panic!("it is in S3") };
        place.endpoint = Some(format!("http://{}", listener.local_addr().unwrap()));
        let held = Self { place: Place::S3(place), is_there: Arc::default(), told: Arc::default() };
        let (is_there, told, address) = (held.is_there.clone(), held.told.clone(), server.address.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&address).await.unwrap();
                tokio::spawn(pass_on(client, server, request, is_there.clone(), told.clone()));
            }
        });
        held
    }
}

async fn pass_on(
    client: TcpStream,
    server: TcpStream,
    request: &str,
    is_there: Arc<AtomicBool>,
    told: Arc<Notify>,
) {
    let ((mut asks, mut hears), (mut answers, mut is_asked)) = (client.into_split(), server.into_split());
    tokio::spawn(async move { tokio::io::copy(&mut answers, &mut hears).await });
    let mut piece = vec![0; 1 << 16];
    while let Ok(length @ 1..) = asks.read(&mut piece).await {
        if piece.starts_with(request.as_bytes()) && !is_there.swap(true, Ordering::Relaxed) {
            told.notified().await;
        }
        is_asked.write_all(&piece[..length]).await.unwrap();
    }
}

#[rstest]
#[case::before_it_began("POST /backups/etcd/db?uploads")]
#[case::before_it_sent("PUT /backups/etcd/db?partNumber")]
#[case::after_it_looked_for_the_last_time("POST /backups/etcd/db?uploadId")]
#[tokio::test]
async fn who_was_given_up_and_runs_on_changes_nothing_of_what_another_took_instead(
    #[case] request: &'static str,
) {
    let (etcd, server) = (Etcd::start().await, Server::start().await);
    let ((_one, first_mounts), (_other, mounts)) = (mounts("SECRET"), mounts("SECRET"));
    let held = Held::at(request, &server).await;
    let first = begun(&held.place, &first_mounts, etcd.source(), "first");
    eventually("the first pod got that far", async || held.is_there.load(Ordering::Relaxed)).await;
    etcd.fill(5).await;
    let saved = content(save(&server.place(), &mounts, &etcd.source(), &saving_in("second")).await).unwrap();
    held.told.notify_one();
    let said = first.await.unwrap();
    assert!(matches!(&said, Err(Error::Failed(_))), "{said:?}");
    assert_eq!(content(check(&server.place(), &mounts).await).unwrap(), saved);
    assert_eq!(server.files(), ["db", "db.json"]);
}

#[tokio::test]
async fn a_file_of_somebody_else_is_left_alone() {
    let (etcd, server, (_pod, mounts)) = (Etcd::start().await, Server::start().await, mounts("SECRET"));
    fs::create_dir(server.folder.path().join("backups/etcd")).unwrap();
    fs::write(server.file(), "theirs").unwrap();
    let said = refusal(save(&server.place(), &mounts, &etcd.source(), &saving("uid")).await);
    assert!(said.contains("no EtcdBackup wrote it"), "{said}");
    assert_eq!(fs::read_to_string(server.file()).unwrap(), "theirs");
}

#[tokio::test]
async fn wrong_credentials_are_told_and_not_shown() {
    let (server, (_pod, mounts)) = (Server::start().await, mounts("WRONG"));
    let said = check(&server.place(), &mounts).await.unwrap_err();
    assert!(matches!(&said, Error::Failed(_)), "{said}");
    assert!(!said.to_string().contains("WRONG"), "{said}");
}

#[tokio::test]
async fn a_server_that_is_away_is_no_reason_to_refuse_a_backup() {
    let (server, (_pod, mounts)) = (Server::start().await, mounts("SECRET"));
    let place = server.place();
    drop(server);
    let said: Result<Outcome, _> = check(&place, &mounts).await;
    assert!(matches!(&said, Err(Error::Failed(_))), "{said:?}");
}

/// A server that has no file at all, behind a certificate of that authority. It ends with the test.
async fn nothing_behind_tls(authorities: &Authorities) -> String {
    let names = ["127.0.0.1".to_owned()];
    let pair = authorities.sign("s3", &names, Validity::default(), Timestamp::now()).unwrap();
    let chain = vec![CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let (acceptor, listener) =
        (TlsAcceptor::from(Arc::new(config)), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let _ = stream.read(&mut [0; 4096]).await;
            let nothing = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            let _ = stream.write_all(nothing).await;
            let _ = stream.shutdown().await;
        }
    });
    format!("https://{address}")
}

#[tokio::test]
async fn an_endpoint_of_an_authority_of_its_own_is_trusted_by_its_secret_and_not_without() {
    let authorities = Authorities::new("s3", Validity::default(), Timestamp::now()).unwrap();
    let endpoint = nothing_behind_tls(&authorities).await;
    let (_pod, mounts) = mounts("SECRET");
    fs::create_dir(&mounts.authorities).unwrap();
    fs::write(mounts.authorities.join("ca.crt"), authorities.bundle()).unwrap();
    let place = |ca_secret: Option<&str>| {
        Place::S3(S3Place {
            path: "backups/etcd/db".to_owned(),
            aws_secret: "aws".to_owned(),
            endpoint: Some(endpoint.clone()),
            region: None,
            force_path_style: true,
            ca_secret: ca_secret.map(str::to_owned),
        })
    };
    let said = refusal(check(&place(Some("authorities")), &mounts).await);
    assert!(said.contains("there is no backup at backups/etcd/db"), "{said}");
    let said = check(&place(None), &mounts).await.unwrap_err();
    assert!(matches!(&said, Error::Failed(why) if why.contains("certificate")), "{said}");
}
