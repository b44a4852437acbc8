//! In a bucket: a file is uploaded in parts, and is there when the upload is completed, in one step.

use std::{path::Path, time::Duration};

use futures::StreamExt as _;
use object_store::{
    ObjectStoreExt as _, PutPayload, RetryConfig,
    aws::{AmazonS3, AmazonS3Builder},
    multipart::{MultipartStore as _, PartId},
};
use tokio::{
    fs::File,
    io::{AsyncReadExt as _, AsyncWriteExt as _},
};

use super::{
    super::{Error, Result, note::SUFFIX, progress::Telling},
    Mounts,
    credentials::Credentials,
    http::Http,
};
use crate::api::backup::{S3Place, Stage};

/// A part of an upload. There can be 10,000 of them, and all but the last have to be 5 MiB or more.
const PART: usize = 8 << 20;

/// How often a request is sent again that a service did not answer, and for how long. The operator tries again later.
const RETRIES: usize = 5;
const RETRIED_FOR: Duration = Duration::from_secs(60);

/// A file in a bucket.
pub(in crate::backup) struct Bucket {
    service: AmazonS3,
    /// For messages: bucket and name.
    shown: String,
    file: object_store::path::Path,
    note: object_store::path::Path,
}

impl Bucket {
    pub(super) fn open(place: &S3Place, mounts: &Mounts) -> Result<Self> {
        let (bucket, name) = place.path.split_once('/').unwrap_or((&place.path, ""));
        let parse = |name: String| {
            let parsed = object_store::path::Path::parse(name);
            parsed.map_err(|error| Error::refused(format!("{} is no path in a bucket: {error}", place.path)))
        };
        let authorities = place.ca_secret.as_ref().map(|_| mounts.authorities.join("ca.crt"));
        let credentials = Credentials::read(&mounts.aws)?;
        let region = place.region.clone().or(credentials.region).unwrap_or_else(|| "us-east-1".to_owned());
        let mut builder = AmazonS3Builder::new()
            .with_http_connector(Http::trusting(authorities.as_deref())?)
            .with_access_key_id(credentials.access_key_id)
            .with_secret_access_key(credentials.secret_access_key)
            .with_region(region)
            .with_bucket_name(bucket)
            .with_retry(RetryConfig {
                max_retries: RETRIES,
                retry_timeout: RETRIED_FOR,
                ..RetryConfig::default()
            })
            .with_virtual_hosted_style_request(!place.force_path_style);
        if let Some(token) = credentials.session_token {
            builder = builder.with_token(token);
        }
        if let Some(endpoint) = &place.endpoint {
            let endpoint = endpoint.trim_end_matches('/');
            builder = builder.with_allow_http(endpoint.starts_with("http://"));
            builder = match endpoint.split_once("://").filter(|_| !place.force_path_style) {
                // The bucket is a part of the host then.
                Some((scheme, host)) => builder.with_endpoint(format!("{scheme}://{bucket}.{host}")),
                None => builder.with_endpoint(endpoint),
            };
        }
        let service = builder.build();
        Ok(Self {
            service: service
                .map_err(|error| Error::failed(format!("cannot set up the client of S3: {error}")))?,
            shown: place.path.clone(),
            file: parse(name.to_owned())?,
            note: parse(format!("{name}{SUFFIX}"))?,
        })
    }

    fn failed(&self, doing: &str) -> impl Fn(object_store::Error) -> Error {
        let doing = format!("{doing} {}", self.shown);
        move |error| Error::failed(format!("cannot {doing}: {}", with_causes(&error)))
    }

    pub(super) async fn read_note(&self) -> Result<Option<Vec<u8>>> {
        let failed = self.failed("read the note of");
        match self.service.get(&self.note).await {
            Ok(answer) => Ok(Some(answer.bytes().await.map_err(failed)?.to_vec())),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    pub(super) async fn write_note(&self, content: Vec<u8>) -> Result<()> {
        let written = self.service.put(&self.note, PutPayload::from(content)).await;
        written.map(drop).map_err(self.failed("write the note of"))
    }

    pub(super) async fn size(&self) -> Result<Option<u64>> {
        match self.service.head(&self.file).await {
            Ok(found) => Ok(Some(found.size)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failed("look for")(error)),
        }
    }

    pub(super) async fn begin(&self) -> Result<String> {
        self.service.create_multipart(&self.file).await.map_err(self.failed("begin to store"))
    }

    pub(super) async fn send(&self, draft: &Path, upload: &str, telling: &Telling) -> Result<Vec<PartId>> {
        let unreadable = |error| Error::failed(format!("cannot read {}: {error}", draft.display()));
        let upload = upload.to_owned();
        let mut file = File::open(draft).await.map_err(unreadable)?;
        let total = file.metadata().await.map_err(unreadable)?.len();
        let (mut parts, mut done) = (Vec::new(), 0);
        while done < total {
            let mut part = Vec::with_capacity(PART);
            let read = (&mut file).take(PART as u64).read_to_end(&mut part).await.map_err(unreadable)?;
            if read == 0 {
                return Err(Error::failed(format!("{} became shorter while it was read", draft.display())));
            }
            let put = self.service.put_part(&self.file, &upload, parts.len(), part.into());
            parts.push(put.await.map_err(self.failed("store"))?);
            done += read as u64;
            telling.tell(Stage::Storing, done, total);
        }
        Ok(parts)
    }

    pub(super) async fn finish(&self, upload: &str, parts: Vec<PartId>) -> Result<()> {
        let finished = self.service.complete_multipart(&self.file, &upload.to_owned(), parts).await;
        finished.map(drop).map_err(self.failed("finish storing"))
    }

    pub(super) async fn take_back(&self, upload: &str) -> Result<()> {
        match self.service.abort_multipart(&self.file, &upload.to_owned()).await {
            // It was finished, or taken back before.
            Err(error) if is_absent(&error) => Ok(()),
            taken => taken.map_err(self.failed("take back what was begun of")),
        }
    }

    pub(super) async fn copy_to(
        &self,
        to: &mut File,
        path: &Path,
        stage: Stage,
        telling: &Telling,
    ) -> Result<()> {
        let failed = self.failed("read");
        let answer = match self.service.get(&self.file).await {
            Err(error) if is_absent(&error) => {
                return Err(Error::refused(format!("there is no backup at {}", self.shown)));
            }
            answer => answer.map_err(&failed)?,
        };
        let total = answer.meta.size;
        let (mut stream, mut done) = (answer.into_stream(), 0);
        while let Some(piece) = stream.next().await {
            let piece = piece.map_err(&failed)?;
            let written = to.write_all(&piece).await;
            written.map_err(|error| Error::failed(format!("cannot write {}: {error}", path.display())))?;
            done += piece.len() as u64;
            telling.tell(stage, done, total);
        }
        Ok(())
    }

    pub(super) async fn remove(&self) -> Result<()> {
        self.delete(&self.file).await
    }

    pub(super) async fn remove_note(&self) -> Result<()> {
        self.delete(&self.note).await
    }

    async fn delete(&self, path: &object_store::path::Path) -> Result<()> {
        match self.service.delete(path).await {
            Err(error) if is_absent(&error) => Ok(()),
            deleted => deleted.map_err(self.failed("remove")),
        }
    }
}

fn is_absent(error: &object_store::Error) -> bool {
    matches!(error, object_store::Error::NotFound { .. })
}

/// What a service says is often only in the causes.
fn with_causes(error: &dyn std::error::Error) -> String {
    let (mut text, mut cause) = (error.to_string(), error.source());
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use object_store::signer::Signer as _;
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[rstest]
    #[case::at_aws(json!({}), "https://bucket.s3.us-east-1.amazonaws.com/etcd/db", "us-east-1")]
    #[case::at_aws_in_the_path(
        json!({"forcePathStyle": true}),
        "https://s3.us-east-1.amazonaws.com/bucket/etcd/db",
        "us-east-1"
    )]
    #[case::in_a_region(
        json!({"region": "eu-west-1"}),
        "https://bucket.s3.eu-west-1.amazonaws.com/etcd/db",
        "eu-west-1"
    )]
    #[case::elsewhere(json!({"endpoint": "https://s3.example.com"}), "https://bucket.s3.example.com/etcd/db", "us-east-1")]
    #[case::elsewhere_in_the_path(
        json!({"endpoint": "http://s3:9000/", "forcePathStyle": true, "region": "here"}),
        "http://s3:9000/bucket/etcd/db",
        "here"
    )]
    #[tokio::test]
    async fn a_file_is_where_the_spec_says(#[case] more: Value, #[case] url: &str, #[case] region: &str) {
        let folder = tempfile::tempdir().unwrap();
        for (file, content) in [("accessKeyId", "KEY"), ("secretAccessKey", "SECRET")] {
            std::fs::write(folder.path().join(file), content).unwrap();
        }
        let mut place = json!({"path": "bucket/etcd/db", "awsSecret": "aws"});
        wheelhouse::overrides::merge(&mut place, &more);
        let mounts = Mounts { aws: folder.path().to_owned(), ..Mounts::default() };
        let bucket = Bucket::open(&serde_json::from_value(place).unwrap(), &mounts).unwrap();
        let signed = bucket.service.signed_url(http::Method::GET, &bucket.file, Duration::from_secs(60));
        let signed = signed.await.unwrap();
        assert_eq!(signed.as_str().split('?').next(), Some(url));
        assert!(signed.as_str().contains(&format!("%2F{region}%2Fs3")), "{signed}");
    }
}
