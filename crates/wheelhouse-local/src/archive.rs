//! What images an archive holds, before anybody loads it.

use std::{fs::File, path::Path};

use serde_json::Value;

use crate::error::{Error, Result};

/// The names of the images in an archive, and how it says them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ArchivedImages {
    /// What `docker save` writes: `manifest.json` lists them.
    Docker(Vec<String>),
    /// An OCI archive: annotations in `index.json` name them.
    Oci(Vec<String>),
}

impl ArchivedImages {
    /// Reads the lists of an archive; one without a named image is refused.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(Error::file("open the image", path))?;
        let malformed = |problem: &str| Error::Malformed {
            path: path.to_owned(),
            expected: "an archive with a named image",
            problem: format!(
                "{problem}; write it with `docker save NAME:TAG`, or `buildah push IMAGE docker-archive:FILE:NAME:TAG`, and do not compress it"
            ),
        };
        let (mut docker, mut oci) = (Vec::new(), Vec::new());
        let mut archive = tar::Archive::new(file);
        for entry in archive.entries().map_err(|error| malformed(&error.to_string()))? {
            let mut entry = entry.map_err(|error| malformed(&error.to_string()))?;
            let name = entry.path().map(|path| path.to_string_lossy().into_owned()).unwrap_or_default();
            let list = match name.trim_start_matches("./") {
                "manifest.json" => &mut docker,
                "index.json" => &mut oci,
                _ => continue,
            };
            *list =
                names(&serde_json::from_reader(&mut entry).map_err(|error| malformed(&error.to_string()))?);
        }
        match (docker.is_empty(), oci.is_empty()) {
            (false, _) => Ok(Self::Docker(docker)),
            (true, false) => Ok(Self::Oci(oci)),
            (true, true) => Err(malformed("it names none")),
        }
    }

    /// The names.
    pub(crate) fn names(&self) -> &[String] {
        let (Self::Docker(names) | Self::Oci(names)) = self;
        names
    }
}

/// The names in either kind of list; a bare tag is no name.
fn names(list: &Value) -> Vec<String> {
    let docker = list
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|each| each.get("RepoTags").and_then(Value::as_array))
        .flatten();
    let oci = list.get("manifests").and_then(Value::as_array).into_iter().flatten().filter_map(|each| {
        let annotations = each.get("annotations")?;
        annotations
            .get("io.containerd.image.name")
            .or_else(|| annotations.get("org.opencontainers.image.ref.name"))
    });
    docker.chain(oci).filter_map(Value::as_str).filter(|name| name.contains(':')).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(files: &[(&str, &str)]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut builder = tar::Builder::new(file.reopen().unwrap());
        for (name, content) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o644);
            builder.append_data(&mut header, name, content.as_bytes()).unwrap();
        }
        builder.finish().unwrap();
        file
    }

    #[test]
    fn both_kinds_of_archive_tell_their_names() {
        let docker = archive(&[("manifest.json", r#"[{"RepoTags": ["a.example/b:1", "a.example/b:2"]}]"#)]);
        assert_eq!(["a.example/b:1", "a.example/b:2"], ArchivedImages::read(docker.path()).unwrap().names());
        let index =
            r#"{"manifests": [{"annotations": {"org.opencontainers.image.ref.name": "a.example/b:1"}}]}"#;
        let oci = archive(&[("oci-layout", "{}"), ("index.json", index)]);
        assert_eq!(
            ArchivedImages::Oci(vec!["a.example/b:1".to_owned()]),
            ArchivedImages::read(oci.path()).unwrap()
        );
    }

    #[rstest::rstest]
    #[case::no_lists(&[("file", "x")])]
    #[case::no_name(&[("manifest.json", r#"[{"RepoTags": null}]"#)])]
    #[case::a_bare_tag(&[("index.json", r#"{"manifests": [{"annotations": {"org.opencontainers.image.ref.name": "latest"}}]}"#)])]
    #[case::half_written(&[("manifest.json", "[{")])]
    fn an_archive_without_a_named_image_is_refused_with_what_to_do(#[case] files: &[(&str, &str)]) {
        let refused = ArchivedImages::read(archive(files).path()).unwrap_err().to_string();
        assert!(
            refused.contains("is not an archive with a named image") && refused.contains("docker save"),
            "{refused}"
        );
    }

    #[test]
    fn what_is_no_archive_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "not an archive at all").unwrap();
        assert!(ArchivedImages::read(file.path()).is_err());
    }
}
