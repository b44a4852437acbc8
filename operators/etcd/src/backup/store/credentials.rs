//! The credentials of S3, from a Secret that is mounted as files.

use std::{fs, path::Path};

use configparser::ini::Ini;

use super::super::{Error, Result};

/// Who we are to the service.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Credentials {
    pub(super) access_key_id: String,
    pub(super) secret_access_key: String,
    pub(super) session_token: Option<String>,
    /// The region, if the Secret says one.
    pub(super) region: Option<String>,
}

impl Credentials {
    /// From the files of a Secret: AWS's own format, or one value a file.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let file = |name: &str| fs::read_to_string(folder.join(name)).ok().map(|text| text.trim().to_owned());
        let (credentials, config) = (section(file("credentials")), section(file("config")));
        let either = |plain: &str, in_section: &str| {
            let said = file(plain).or_else(|| credentials.as_ref()?.get("default", in_section));
            said.filter(|value| !value.is_empty())
        };
        let region = file("region").or_else(|| config.as_ref()?.get("default", "region"));
        let found = either("accessKeyId", "aws_access_key_id")
            .zip(either("secretAccessKey", "aws_secret_access_key"));
        let (access_key_id, secret_access_key) = found.ok_or_else(|| {
            Error::failed(
                "awsSecret has no credentials: it needs the key `credentials` with a [default] section that has aws_access_key_id and aws_secret_access_key, or the keys `accessKeyId` and `secretAccessKey`"
                    .to_owned(),
            )
        })?;
        let session_token = either("sessionToken", "aws_session_token");
        Ok(Self { access_key_id, secret_access_key, session_token, region })
    }
}

fn section(text: Option<String>) -> Option<Ini> {
    let mut ini = Ini::new();
    // A comment begins a line: secrets may have any of these within.
    ini.set_inline_comment_symbols(Some(&[]));
    ini.read(text?).ok().map(|_| ini)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn read(files: &[(&str, &str)]) -> Result<Credentials> {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in files {
            fs::write(folder.path().join(name), content).unwrap();
        }
        Credentials::read(folder.path())
    }

    #[rstest]
    #[case::as_the_original_has_it(&[
        ("credentials", "[default]\naws_access_key_id = KEY\naws_secret_access_key = se#c;ret/+=\n"),
        ("config", "[default]\nregion = eu-west-1\n"),
    ])]
    #[case::plainly(&[("accessKeyId", "KEY\n"), ("secretAccessKey", "se#c;ret/+="), ("region", "eu-west-1")])]
    fn a_secret_of_either_format_is_understood(#[case] files: &[(&str, &str)]) {
        let read = read(files).unwrap();
        assert_eq!((read.access_key_id.as_str(), read.secret_access_key.as_str()), ("KEY", "se#c;ret/+="));
        assert_eq!(read.region.as_deref(), Some("eu-west-1"));
    }

    #[rstest]
    #[case::of_nothing(&[])]
    #[case::of_another_profile(&[("credentials", "[other]\naws_access_key_id=a\naws_secret_access_key=b\n")])]
    #[case::of_half(&[("accessKeyId", "KEY")])]
    fn a_secret_without_credentials_is_told_and_not_shown(#[case] files: &[(&str, &str)]) {
        let said = read(files).err().unwrap().to_string();
        assert!(said.contains("awsSecret has no credentials") && !said.contains("KEY"), "{said}");
    }
}
