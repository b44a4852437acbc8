//! What is in Secrets: copied, so that a certificate and its key belong together, and so
//! that nginx has what it accepted whatever becomes of the Secret.

use std::{
    fs,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
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

/// Copies the authorities in a Secret's folder to a file below `run`; that file. Who is trusted is
/// checked first: one that nginx cannot read would keep everything else from being served.
///
/// # Errors
/// What is wrong with them.
pub(crate) fn take_authorities(secret: &Path, run: &Path) -> Result<String, String> {
    let content = fs::read(secret.join("ca.crt")).map_err(|_| "there is no ca.crt in it".to_owned())?;
    let mut trusted = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&content) {
        let unreadable = |error: &dyn std::fmt::Display| format!("ca.crt cannot be read: {error}");
        let certificate = certificate.map_err(|error| unreadable(&error))?;
        trusted.add(certificate).map_err(|error| unreadable(&error))?;
    }
    if trusted.is_empty() {
        return Err("there is no certificate in its ca.crt".to_owned());
    }
    let digest: String = Sha256::digest(&content).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let copy = run.join(format!("ca-{digest}.crt"));
    write(&copy, &content).map_err(|error| format!("cannot write {}: {error}", copy.display()))?;
    Ok(copy.to_string_lossy().into_owned())
}

/// All of it or nothing, and only once: nginx may be reading it.
fn write(path: &Path, content: &[u8]) -> std::io::Result<()> {
    use std::io::Write as _;
    if fs::read(path).is_ok_and(|known| known == content) {
        return Ok(());
    }
    let new = path.with_extension("new");
    let mut options = fs::OpenOptions::new();
    options.create(true).write(true).truncate(true).mode(0o600).open(&new)?.write_all(content)?;
    fs::rename(&new, path)
}

/// The folder of the certificate that a configuration names.
pub(crate) fn in_use(configuration: &str) -> Option<String> {
    let line = configuration.lines().find_map(|line| line.trim().strip_prefix("ssl_certificate "))?;
    line.strip_suffix("/tls.crt;").map(str::to_owned)
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
    fn authorities_are_copied_if_they_are_some() {
        let (secret, run) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let take = || take_authorities(secret.path(), run.path());
        assert_eq!(take().unwrap_err(), "there is no ca.crt in it");
        let put = |text: &str| fs::write(secret.path().join("ca.crt"), text).unwrap();
        put("# none yet");
        assert_eq!(take().unwrap_err(), "there is no certificate in its ca.crt");
        put("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
        assert!(take().unwrap_err().starts_with("ca.crt cannot be read: "));
        let authority = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap().cert.pem();
        put(&authority);
        assert_eq!(fs::read_to_string(take().unwrap()).unwrap(), authority);
        let copy = fs::File::options().write(true).open(take().unwrap()).unwrap();
        copy.set_modified(std::time::UNIX_EPOCH).unwrap();
        let modified = fs::metadata(take().unwrap()).unwrap().modified().unwrap();
        assert_eq!(modified, std::time::UNIX_EPOCH, "what nginx may be reading is left alone");
    }

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
        let configuration = format!("        http2 on;\n        ssl_certificate {second}/tls.crt;\n");
        assert_eq!(in_use(&configuration).as_deref(), Some(second.as_str()));
        assert_eq!(in_use("daemon off;\n"), None);
        forget_others(run.path(), &second);
        assert!(!Path::new(&first).exists() && Path::new(&second).join("tls.key").exists());
    }
}
