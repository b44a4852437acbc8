//! Kubeconfig files: our own, and the context that `up` adds to the user's.
//!
//! The user's file is theirs: whatever else is in it stays, it is replaced by
//! one rename, and kubectl's own lock file keeps kubectl out meanwhile.

use std::{
    fs::{self, File},
    io::ErrorKind,
    net::SocketAddrV4,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};

use crate::{
    certificates::Pair,
    error::{Error, Result},
    folders,
};

/// How to reach one cluster, and as whom.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The context, cluster and user carry this name.
    pub context: String,
    server: String,
    authority: String,
    certificate: String,
    key: String,
}

impl Entry {
    /// From certificate files; the context is called `wheelhouse-CLUSTER`.
    pub fn from_files(cluster: &str, api: SocketAddrV4, authority: &Path, client: &Pair) -> Result<Self> {
        let encoded = |path: &Path| folders::read_text(path).map(|text| STANDARD.encode(text));
        Ok(Self {
            context: context(cluster),
            server: format!("https://{api}"),
            authority: encoded(authority)?,
            certificate: encoded(&client.certificate)?,
            key: encoded(&client.key)?,
        })
    }

    /// From a file that [`standalone`] wrote.
    pub fn from_kubeconfig(path: &Path) -> Result<Self> {
        let config = parse(path, &folders::read_text(path)?)?;
        let text = |pointer: &str| {
            config.pointer(pointer).and_then(Value::as_str).map(str::to_owned).ok_or_else(|| {
                Error::Malformed {
                    path: path.to_owned(),
                    expected: "a kubeconfig that wheelhouse wrote",
                    problem: format!("it has no {pointer}; `wheelhouse local down` and `up` make it anew"),
                }
            })
        };
        Ok(Self {
            context: text("/current-context")?,
            server: text("/clusters/0/cluster/server")?,
            authority: text("/clusters/0/cluster/certificate-authority-data")?,
            certificate: text("/users/0/user/client-certificate-data")?,
            key: text("/users/0/user/client-key-data")?,
        })
    }
}

/// The name of a cluster's context.
pub fn context(cluster: &str) -> String {
    format!("wheelhouse-{cluster}")
}

/// A file with one context, selected.
pub fn standalone(entry: &Entry) -> String {
    let mut config = json!({"apiVersion": "v1", "kind": "Config"});
    add(&mut config, entry);
    to_yaml(&config)
}

/// Adds the context to a kubeconfig, or replaces the one of the same name, and selects it.
fn add(config: &mut Value, entry: &Entry) {
    remove(config, &entry.context);
    let name = &entry.context;
    let sections = [
        (
            "clusters",
            json!({"name": name, "cluster": {
                "server": entry.server, "certificate-authority-data": entry.authority}}),
        ),
        (
            "users",
            json!({"name": name, "user": {
                "client-certificate-data": entry.certificate, "client-key-data": entry.key}}),
        ),
        ("contexts", json!({"name": name, "context": {"cluster": name, "user": name}})),
    ];
    let Some(config) = config.as_object_mut() else { return };
    for (section, value) in sections {
        // An empty section is often written as `null`.
        match config.get_mut(section).and_then(Value::as_array_mut) {
            Some(list) => list.push(value),
            None => drop(config.insert(section.to_owned(), json!([value]))),
        }
    }
    config.insert("current-context".to_owned(), json!(name));
}

/// The authority of the cluster that carries a context's name.
fn authority_of(config: &Value, context: &str) -> Option<String> {
    let clusters = config.get("clusters")?.as_array()?;
    let cluster = clusters.iter().find(|each| each.get("name").and_then(Value::as_str) == Some(context))?;
    cluster.pointer("/cluster/certificate-authority-data")?.as_str().map(str::to_owned)
}

/// Takes the context out again; if it was selected, none is selected.
fn remove(config: &mut Value, context: &str) {
    for section in ["clusters", "users", "contexts"] {
        if let Some(list) = config.get_mut(section).and_then(Value::as_array_mut) {
            list.retain(|entry| entry.get("name").and_then(Value::as_str) != Some(context));
        }
    }
    if config.get("current-context").and_then(Value::as_str) == Some(context)
        && let Some(config) = config.as_object_mut()
    {
        config.insert("current-context".to_owned(), json!(""));
    }
}

fn parse(path: &Path, text: &str) -> Result<Value> {
    let malformed =
        |problem: String| Error::Malformed { path: path.to_owned(), expected: "a kubeconfig", problem };
    if text.trim().is_empty() {
        return Ok(json!({"apiVersion": "v1", "kind": "Config"}));
    }
    let value: Value = serde_saphyr::from_str(text)
        .map_err(|error| malformed(format!("{error}; correct it or move it away")))?;
    match value {
        Value::Object(_) => Ok(value),
        Value::Null => Ok(Value::Object(Map::new())),
        _ => Err(malformed("it is no mapping; correct it or move it away".to_owned())),
    }
}

fn to_yaml(config: &Value) -> String {
    serde_saphyr::to_string(config).unwrap_or_default()
}

/// The user's own kubeconfig.
#[derive(Debug, Clone)]
pub struct UserKubeconfig {
    path: PathBuf,
    /// Whose the file is to be, where that is not who we are.
    owner: Option<(u32, u32)>,
}

impl UserKubeconfig {
    /// The first file of `KUBECONFIG`, or `~/.kube/config`; under sudo, that of who called sudo.
    pub fn locate() -> Self {
        let listed = std::env::var_os("KUBECONFIG")
            .and_then(|paths| std::env::split_paths(&paths).find(|path| is_users(path)));
        let caller = std::env::var("SUDO_USER")
            .ok()
            .filter(|_| nix::unistd::geteuid().is_root())
            .and_then(|name| nix::unistd::User::from_name(&name).ok().flatten());
        let owner = caller.as_ref().map(|user| (user.uid.as_raw(), user.gid.as_raw()));
        let path =
            listed.unwrap_or_else(|| caller.map_or_else(folders::home, |user| user.dir).join(".kube/config"));
        // A link stays a link: what it points to is replaced, or made.
        let target =
            fs::canonicalize(&path).or_else(|_| fs::read_link(&path).map(|to| path.with_file_name(to)));
        Self { path: target.unwrap_or(path), owner }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it can be read and understood, before anything is built on it.
    pub fn check(&self) -> Result<()> {
        if !self.is_file_or_missing() {
            return Err(Error::Refused(format!(
                "{} is not a file that a context can be added to: let KUBECONFIG name another, or unset it",
                self.path.display()
            )));
        }
        self.read().map(drop)
    }

    /// Anything else, a device or a folder, is not ours to replace.
    fn is_file_or_missing(&self) -> bool {
        fs::metadata(&self.path).map_or(true, |metadata| metadata.is_file())
    }

    /// Adds and selects a context.
    pub async fn add(&self, entry: &Entry) -> Result<()> {
        self.change(|config| add(config, entry)).await
    }

    /// Removes a context; where `entry` is known, only if it is still that cluster's. A file that
    /// does not exist stays so.
    pub async fn remove(&self, context: &str, entry: Option<&Entry>) -> Result<()> {
        if !self.path.exists() || !self.is_file_or_missing() {
            return Ok(());
        }
        self.change(|config| {
            let found = authority_of(config, context);
            if entry.is_none_or(|entry| found.as_ref() == Some(&entry.authority)) {
                remove(config, context);
            }
        })
        .await
    }

    /// The context that is selected.
    pub fn current_context(&self) -> Option<String> {
        self.read().ok()?.get("current-context")?.as_str().map(str::to_owned)
    }

    fn read(&self) -> Result<Value> {
        match fs::read_to_string(&self.path) {
            Ok(text) => parse(&self.path, &text),
            Err(error) if error.kind() == ErrorKind::NotFound => parse(&self.path, ""),
            Err(error) => Err(Error::file("read", &self.path)(error)),
        }
    }

    async fn change(&self, change: impl FnOnce(&mut Value)) -> Result<()> {
        let created = self.ensure_folder()?;
        let _lock = KubectlLock::take(&self.path).await?;
        let before = self.read()?;
        let mut after = before.clone();
        change(&mut after);
        if before == after {
            return Ok(());
        }
        let metadata = fs::metadata(&self.path).ok();
        let mode = metadata.as_ref().map_or(0o600, |metadata| metadata.permissions().mode() & 0o777);
        let owner = metadata.map(|metadata| (metadata.uid(), metadata.gid())).or(self.owner);
        if let (Some(folder), Some((user, group))) = (created, owner) {
            std::os::unix::fs::chown(&folder, Some(user), Some(group))
                .map_err(Error::file("hand over to its user", &folder))?;
        }
        folders::write_file_of(&self.path, to_yaml(&after), mode, owner)
    }

    /// Makes the file's folder; its path, if it was not there.
    fn ensure_folder(&self) -> Result<Option<PathBuf>> {
        match self.path.parent() {
            Some(folder) if !folder.exists() => {
                folders::create_folder(folder)?;
                Ok(Some(folder.to_owned()))
            }
            _ => Ok(None),
        }
    }
}

/// Whether a file that `KUBECONFIG` lists is the user's own: that of one of our clusters belongs to
/// this cluster alone, whoever has it in the environment.
fn is_users(path: &Path) -> bool {
    !path.as_os_str().is_empty() && !path.starts_with(folders::state())
}

/// The lock that kubectl itself takes: a file beside the kubeconfig.
struct KubectlLock {
    path: PathBuf,
}

impl KubectlLock {
    async fn take(kubeconfig: &Path) -> Result<Self> {
        let mut path = kubeconfig.as_os_str().to_owned();
        path.push(".lock");
        let path = PathBuf::from(path);
        loop {
            match File::options().write(true).create_new(true).open(&path) {
                Ok(_) => return Ok(Self { path }),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    // It is held for milliseconds; one that is older belongs to something that died.
                    let made = fs::metadata(&path).and_then(|metadata| metadata.modified());
                    if made.is_ok_and(|made| made.elapsed().is_ok_and(|age| age > Duration::from_secs(5))) {
                        let _ = fs::remove_file(&path);
                    }
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Err(error) => return Err(Error::file("lock with", &path)(error)),
            }
        }
    }
}

impl Drop for KubectlLock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(server: &str) -> Entry {
        Entry {
            context: context("demo"),
            server: server.to_owned(),
            authority: "QQ==".to_owned(),
            certificate: "Qg==".to_owned(),
            key: "Qw==".to_owned(),
        }
    }

    const THEIRS: &str = "\
apiVersion: v1
kind: Config
preferences: {colors: true}
clusters:
- name: work
  cluster: {server: 'https://work:6443', tls-server-name: other, insecure-skip-tls-verify: true}
contexts:
- name: work
  context: {cluster: work, user: me, namespace: team}
current-context: work
users:
- name: me
  user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: login, args: [--now], env: null}}
";

    fn file_with(text: &str) -> (tempfile::TempDir, UserKubeconfig) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        fs::write(&path, text).unwrap();
        (folder, UserKubeconfig { path, owner: None })
    }

    #[tokio::test]
    async fn what_else_is_in_the_users_file_stays() {
        let (_folder, file) = file_with(THEIRS);
        let before = file.read().unwrap();
        file.add(&entry("https://one")).await.unwrap();
        file.add(&entry("https://two")).await.unwrap();
        let with_ours = file.read().unwrap();
        assert_eq!("wheelhouse-demo", with_ours["current-context"]);
        assert_eq!(2, with_ours["clusters"].as_array().unwrap().len());
        assert_eq!("https://two", with_ours["clusters"][1]["cluster"]["server"]);
        file.remove("wheelhouse-demo", Some(&entry("https://any"))).await.unwrap();
        let mut after = file.read().unwrap();
        assert_eq!("", after["current-context"]);
        after["current-context"] = json!("work");
        assert_eq!(before, after);
    }

    #[tokio::test]
    async fn another_clusters_context_of_the_same_name_stays() {
        let (_folder, file) = file_with("");
        file.add(&entry("https://one")).await.unwrap();
        let another = Entry { authority: "WA==".to_owned(), ..entry("https://one") };
        file.remove("wheelhouse-demo", Some(&another)).await.unwrap();
        assert_eq!(Some("wheelhouse-demo".to_owned()), file.current_context());
        file.remove("wheelhouse-demo", None).await.unwrap();
        assert_eq!(Some(String::new()), file.current_context());
    }

    #[tokio::test]
    async fn a_selection_that_is_not_ours_is_left_alone_by_remove() {
        let (_folder, file) = file_with(THEIRS);
        file.add(&entry("https://one")).await.unwrap();
        file.change(|config| config["current-context"] = json!("work")).await.unwrap();
        file.remove("wheelhouse-demo", Some(&entry("https://any"))).await.unwrap();
        assert_eq!(Some("work".to_owned()), file.current_context());
    }

    #[rstest::rstest]
    #[case::empty("")]
    #[case::nulls("clusters: null\ncontexts: null\nusers: null\n")]
    #[case::comment_only("# nothing yet\n")]
    #[tokio::test]
    async fn a_file_with_nothing_in_it_is_filled(#[case] text: &str) {
        let (_folder, file) = file_with(text);
        file.add(&entry("https://one")).await.unwrap();
        let read = Entry::from_kubeconfig(&file.path).unwrap();
        assert_eq!("https://one", read.server);
    }

    #[tokio::test]
    async fn a_broken_file_is_refused_and_not_touched() {
        let (_folder, file) = file_with("clusters: [unclosed");
        assert!(file.check().is_err());
        assert!(file.add(&entry("https://one")).await.is_err());
        assert_eq!("clusters: [unclosed", fs::read_to_string(&file.path).unwrap());
    }

    #[tokio::test]
    async fn what_is_not_a_file_is_refused_and_left_alone() {
        let device = UserKubeconfig { path: PathBuf::from("/dev/null"), owner: None };
        assert!(
            device.check().unwrap_err().to_string().contains("is not a file that a context can be added to")
        );
        device.remove("wheelhouse-demo", None).await.unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }

    #[tokio::test]
    async fn a_new_file_is_for_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let file = UserKubeconfig { path: folder.path().join("deep/config"), owner: None };
        file.add(&entry("https://one")).await.unwrap();
        assert_eq!(0o600, fs::metadata(&file.path).unwrap().permissions().mode() & 0o777);
        assert_eq!(1, fs::read_dir(folder.path().join("deep")).unwrap().count());
    }
}
