//! Volumes that are as large as was asked for: each is a file system of its own, in
//! a file on the node's disk.
//!
//! Invariants:
//! - The file of a volume holds a whole file system from the moment it has its name: it is
//!   made under another one.
//! - A file system is mounted in its node's machine only, so it goes with the machine; a
//!   machine that starts mounts what it finds before any pod can.
//! - Only a volume that has a file system of its own is ever filled: never the host's disk.

use std::path::{Path, PathBuf};

use crate::{
    error::{Error, Result},
    machine::Machine,
};

/// The StorageClass of folders on the node's disk, however large they grow.
pub(crate) const PLAIN_CLASS: &str = "local-path";
/// The StorageClass of volumes that are as large as was asked for.
pub(crate) const SIZED_CLASS: &str = "local-sized";
/// Where a node keeps those, in its own folder.
const SIZED_FOLDER: &str = "sized-volumes";
/// What a volume is filled with.
const FILLING: &str = ".wheelhouse-chaos";

/// Where a machine keeps the volumes of a class.
pub(crate) fn folder(machine: &Path, class: &str) -> PathBuf {
    machine.join(if class == SIZED_CLASS { SIZED_FOLDER } else { "volumes" })
}

/// What the provisioner's helper pod does to make a volume.
pub(crate) fn setup_script() -> String {
    by_class(
        r#"mkdir -m 0777 -p "$VOL_DIR""#,
        r#"
  mkdir -p "$VOL_DIR"
  if ! [ -e "$VOL_DIR.ext4" ]; then
    rm -f "$VOL_DIR.new"
    truncate -s "$VOL_SIZE_BYTES" "$VOL_DIR.new"
    mkfs.ext4 -q -m 0 "$VOL_DIR.new"
    mv "$VOL_DIR.new" "$VOL_DIR.ext4"
  fi
  mountpoint -q "$VOL_DIR" || mount -o loop,discard "$VOL_DIR.ext4" "$VOL_DIR"
  rm -rf "$VOL_DIR/lost+found"
  chmod 0777 "$VOL_DIR""#,
    )
}

/// What it does to remove one.
pub(crate) fn teardown_script() -> String {
    by_class(
        r#"rm -rf "$VOL_DIR""#,
        r#"
  ! mountpoint -q "$VOL_DIR" || umount "$VOL_DIR"
  rm -rf "$VOL_DIR.ext4" "$VOL_DIR.new" "$VOL_DIR""#,
    )
}

/// One script for plain volumes, and one for those with a size. The latter mounts for the
/// machine: the pod has the numbers of the machine's processes, and the first of them has
/// its mounts.
fn by_class(plain: &str, sized: &str) -> String {
    format!(
        r#"set -e
case "$VOL_DIR" in
*/{SIZED_FOLDER}/*) exec nsenter -t 1 -m -- /bin/sh -e -c '
  PATH=/usr/sbin:/usr/bin:/sbin:/bin{sized}' ;;
*) {plain} ;;
esac
"#
    )
}

/// Mounts the volumes that a machine had before it was started anew.
pub(crate) async fn mount_again(machine: &Machine) -> Result<()> {
    let folder = folder(&machine.folder(), SIZED_CLASS);
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::file("list", &folder)(error)),
    };
    for file in entries.flatten().map(|entry| entry.path()) {
        if file.extension().is_some_and(|extension| extension == "ext4") {
            machine
                .call(format!("mount the volume {}", file.display()), "mount")
                .args(["-o", "loop,discard"])
                .arg(&file)
                .arg(file.with_extension(""))
                .run()
                .await?;
        }
    }
    Ok(())
}

/// Takes all the room of a volume; whether there was any to take.
pub(crate) async fn fill(machine: &Machine, volume: &Path) -> Result<bool> {
    // What is not written takes no room of the disk below. What is free may be in many
    // pieces, so ever smaller ones are taken.
    let script = r#"
        mountpoint -q "$1" || exit 0
        room() { stat --file-system --format='%a * %S' -- "$1"; }
        piece=$(($(room "$1") / 4096 * 4096))
        [ "$piece" -gt 0 ] || exit 0
        taken=0
        while [ "$piece" -gt 0 ]; do
            if fallocate --offset "$taken" --length "$piece" -- "$1/$2" 2>/dev/null; then
                taken=$((taken + piece))
            else
                piece=$((piece / 2 / 4096 * 4096))
            fi
        done
        if [ "$(($(room "$1")))" -ge 65536 ]; then
            rm -f -- "$1/$2"
            echo "there is room left" >&2
            exit 1
        fi
        echo filled"#;
    let doing = format!("fill the volume {}", volume.display());
    let call = machine.call(doing, "sh").args(["-c", script, "sh"]).arg(volume).arg(FILLING);
    Ok(call.output().await?.trim() == "filled")
}

/// Gives back what was taken.
pub(crate) async fn empty(machine: &Machine, volume: &Path) -> Result<()> {
    let doing = format!("give back the room of the volume {}", volume.display());
    machine.call(doing, "rm").arg("-f").arg(volume.join(FILLING)).run().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_has_a_folder_of_its_own_and_the_scripts_know_which() {
        let [plain, sized] =
            [PLAIN_CLASS, SIZED_CLASS].map(|class| folder(Path::new("/state/node-1"), class));
        assert_eq!(plain, Path::new("/state/node-1/volumes"));
        let inside = format!("*/{}/*", sized.file_name().unwrap().to_string_lossy());
        assert!(setup_script().contains(&inside) && teardown_script().contains(&inside));
    }
}
