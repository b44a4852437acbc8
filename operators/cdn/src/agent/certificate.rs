//! The certificate of HTTPS: copied, so that certificate and key belong together.

use std::{
    fs,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use sha2::{Digest as _, Sha256};

/// Copies what is in a Secret's folder to one of its own below `run`; that folder.
///
/// # Errors
/// What is missing.
pub(crate) fn take(secret: &Path, run: &Path) -> Result<String, String> {
    // kubelet replaces both at once, by a link to another folder.
    let data = secret.join("..data");
    let folder = fs::canonicalize(&data).unwrap_or_else(|_| secret.to_owned());
    let read = |name: &str| fs::read(folder.join(name)).map_err(|_| format!("there is no {name} in it"));
    let (certificate, key) = (read("tls.crt")?, read("tls.key")?);
    let digest = Sha256::new().chain_update(&certificate).chain_update(b"\n").chain_update(&key).finalize();
    let digest: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let copy = run.join(format!("tls-{digest}"));
    let cannot = |error: std::io::Error| format!("cannot write {}: {error}", copy.display());
    fs::create_dir_all(&copy).map_err(cannot)?;
    for (name, content) in [("tls.crt", certificate), ("tls.key", key)] {
        write(&copy.join(name), &content).map_err(cannot)?;
    }
    Ok(copy.to_string_lossy().into_owned())
}

fn write(path: &Path, content: &[u8]) -> std::io::Result<()> {
    use std::io::Write as _;
    let mut options = fs::OpenOptions::new();
    options.create(true).write(true).truncate(true).mode(0o600).open(path)?.write_all(content)
}

/// Removes the copies that are not used any more.
pub(crate) fn forget_others(run: &Path, used: &str) {
    let entries = fs::read_dir(run).into_iter().flatten().flatten();
    let copies = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("tls-"));
    for copy in copies.map(|entry| entry.path()).filter(|path| path != &PathBuf::from(used)) {
        // It is in memory, and goes with the pod.
        let _ = fs::remove_dir_all(copy);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_and_its_key_are_copied_together() {
        let (secret, run) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let missing = take(secret.path(), run.path()).unwrap_err();
        assert_eq!(missing, "there is no tls.crt in it");
        fs::write(secret.path().join("tls.crt"), "c1").unwrap();
        fs::write(secret.path().join("tls.key"), "k1").unwrap();
        let first = take(secret.path(), run.path()).unwrap();
        assert_eq!(first, take(secret.path(), run.path()).unwrap());
        fs::write(secret.path().join("tls.key"), "k2").unwrap();
        let second = take(secret.path(), run.path()).unwrap();
        assert_ne!(first, second);
        forget_others(run.path(), &second);
        assert!(!Path::new(&first).exists() && Path::new(&second).join("tls.key").exists());
    }
}
