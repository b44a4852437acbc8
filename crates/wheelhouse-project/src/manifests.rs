//! What an operator prints, as files: `config/` for kustomize, and one file in `deploy/` for `kubectl apply -f`.
//!
//! The operator's own program says what is in them, so they are never anything else than what the code registers.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::{
    change::{Change, OnConflict},
    error::{Error, Result},
    project::Project,
    template::Files,
};

/// How a file begins that nobody should write by hand.
const HEADER: &str = "# Generated: `wheelhouse manifests` writes this anew.\n";
/// The folders that hold nothing but such files.
const FOLDERS: [&str; 4] = ["config", "config/crds", "config/rbac", "config/operator"];
/// What is in these is people's, but for the list of it.
const SAMPLES: &str = "config/samples";

/// A document of what was printed.
struct Document<'a> {
    text: &'a str,
    kind: String,
    object: Value,
}

/// The files that a project's manifests are, from what `OPERATOR manifests` prints.
///
/// # Errors
/// When that is something else.
pub fn files(project: &Project, folder: &Path, printed: &str) -> Result<Files> {
    let documents = documents(printed)?;
    let mut files = Files::new();
    let operator = project.operator();
    let what = format!("# `kubectl apply -f` of it is the whole installation of {operator}.\n");
    files.insert(PathBuf::from(format!("deploy/{}.yaml", project.name)), format!("{HEADER}{what}{printed}"));
    for document in &documents {
        let path = match document.kind.as_str() {
            "CustomResourceDefinition" => format!("config/crds/{}.yaml", crd_name(project, &document.object)),
            "Role" | "ClusterRole" => "config/rbac/rbac_role.yaml".to_owned(),
            "RoleBinding" | "ClusterRoleBinding" => "config/rbac/rbac_role_binding.yaml".to_owned(),
            "ServiceAccount" => "config/rbac/service_account.yaml".to_owned(),
            other => format!("config/operator/{}.yaml", other.to_ascii_lowercase()),
        };
        let content = files.entry(PathBuf::from(path)).or_insert_with(|| HEADER.to_owned());
        content.push_str("---\n");
        content.push_str(document.text);
    }
    let samples: Vec<_> = names_in(&folder.join(SAMPLES))?;
    if !samples.is_empty() {
        files.insert(PathBuf::from(SAMPLES).join("kustomization.yaml"), kustomization(&samples));
    }
    let mut folders = Vec::new();
    for name in ["crds", "rbac", "operator"] {
        let of = PathBuf::from("config").join(name);
        let inside: Vec<_> = files
            .keys()
            .filter(|path| path.parent() == Some(&of))
            .filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
            .collect();
        if !inside.is_empty() {
            files.insert(of.join("kustomization.yaml"), kustomization(&inside));
            folders.push(name.to_owned());
        }
    }
    files.insert(PathBuf::from("config/kustomization.yaml"), kustomization(&folders));
    Ok(files)
}

/// What has to be done so that a project's manifests are these files. Samples stay as they are.
///
/// # Errors
/// When a file cannot be read.
pub fn change(folder: &Path, files: &Files) -> Result<Change> {
    let mut before = Files::new();
    for place in
        FOLDERS.map(PathBuf::from).into_iter().chain([PathBuf::from(SAMPLES), PathBuf::from("deploy")])
    {
        for name in all_names_in(&folder.join(&place))? {
            let path = place.join(name);
            let absolute = folder.join(&path);
            let content = fs::read_to_string(&absolute).map_err(Error::file("read", &absolute))?;
            if content.starts_with(HEADER) {
                before.insert(path, content);
            }
        }
    }
    Change::plan(folder, &before, files, OnConflict::Refuse).map_err(|error| match error {
        // There are no two sides: what is generated is not merged.
        Error::InTheWay(path) => Error::Taken(format!(
            "{} is there already, and was not made by this command: nothing was changed. Move it away",
            path.display()
        )),
        error => error,
    })
}

fn documents(printed: &str) -> Result<Vec<Document<'_>>> {
    texts(printed)
        .into_iter()
        .map(|text| {
            let object: Value = serde_saphyr::from_str(text).map_err(|error| {
                Error::Manifest(error.to_string().trim_start_matches("error: ").to_owned())
            })?;
            let kind = object.get("kind").and_then(Value::as_str).map(str::to_owned);
            let kind = kind.ok_or_else(|| Error::Manifest(format!("a document without a kind: {text}")))?;
            Ok(Document { text, kind, object })
        })
        .collect()
}

/// The texts between the lines that are nothing but `---`: others may end so, such as a title that somebody underlined.
fn texts(printed: &str) -> Vec<&str> {
    let mut ends = Vec::new();
    let mut at = 0;
    for line in printed.split_inclusive('\n') {
        if line.trim_end() == "---" {
            ends.push((at, at + line.len()));
        }
        at += line.len();
    }
    ends.push((at, at));
    let mut begun = 0;
    let texts =
        ends.into_iter().filter_map(|(end, next)| printed.get(std::mem::replace(&mut begun, next)..end));
    texts.filter(|text| !text.trim().is_empty()).collect()
}

/// As in the talk: the group's first part, the version that is stored, the kind.
fn crd_name(project: &Project, crd: &Value) -> String {
    let text = |pointer| crd.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let group = text("/spec/group");
    let group = group.strip_suffix(&format!(".{}", project.domain)).unwrap_or(group);
    let versions = crd.pointer("/spec/versions").and_then(Value::as_array).cloned().unwrap_or_default();
    let stored = versions.iter().find(|version| version.get("storage") == Some(&Value::Bool(true)));
    let stored = stored.and_then(|version| version.get("name")).and_then(Value::as_str).unwrap_or_default();
    format!("{group}_{stored}_{}", text("/spec/names/kind").to_ascii_lowercase())
}

fn kustomization(resources: &[String]) -> String {
    let mut text =
        format!("{HEADER}apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n");
    for resource in resources {
        text.push_str(&format!("- {resource}\n"));
    }
    text
}

/// The manifests in a folder, sorted, but for kustomize's own.
fn names_in(folder: &Path) -> Result<Vec<String>> {
    let mut names = all_names_in(folder)?;
    names.retain(|name| name != "kustomization.yaml");
    Ok(names)
}

fn all_names_in(folder: &Path) -> Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(Error::file("look into", folder))?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let name =
            entry.map_err(Error::file("look into", folder))?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".yaml") {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{project::Sdk, template};

    fn project() -> Project {
        Project {
            template: template::NEWEST,
            name: "cdn".to_owned(),
            domain: "anevia.com".to_owned(),
            member: false,
            settings: Vec::new(),
            images: None,
            sdk: Sdk::Path { path: "..".to_owned() },
            apis: Vec::new(),
        }
    }

    const PRINTED: &str = "---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: cdnclusters.cluster.anevia.com
spec:
  group: cluster.anevia.com
  names: {kind: CdnCluster}
  versions: [{name: v2, storage: false}, {name: v1, storage: true}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: cdn-operator}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: cdn-operator}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: cdn-operator-lease}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: cdn-operator}
";

    #[test]
    fn what_is_printed_becomes_files_for_kustomize_and_one_for_kubectl() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join(SAMPLES)).unwrap();
        fs::write(folder.path().join(SAMPLES).join("cluster_v1_cdncluster.yaml"), "mine\n").unwrap();
        let files = files(&project(), folder.path(), PRINTED).unwrap();
        let shown: String =
            files.iter().map(|(path, content)| format!("=== {}\n{content}", path.display())).collect();
        insta::assert_snapshot!(shown);
    }

    #[test]
    fn a_line_of_a_text_that_ends_as_documents_do_ends_none() {
        let crd = "\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
spec:
  group: cluster.anevia.com
  names: {kind: CdnCluster}
  versions:
  - name: v1
    storage: true
    description: |-
      A title
      ---
      and more ---
      of it.
";
        let printed = format!("---\n{crd}--- \nkind: Role\n---\n");
        assert_eq!(texts(&printed), [crd, "kind: Role\n"]);
        let files = files(&project(), Path::new("nowhere"), &printed).unwrap();
        let written = &files[Path::new("config/crds/cluster_v1_cdncluster.yaml")];
        assert!(written.ends_with(crd), "{written}");
    }

    #[test]
    fn what_is_up_to_date_is_not_written_and_what_nobody_prints_any_more_goes() {
        let folder = tempfile::tempdir().unwrap();
        let wanted = files(&project(), folder.path(), PRINTED).unwrap();
        change(folder.path(), &wanted).unwrap().carry_out(folder.path()).unwrap();
        assert!(change(folder.path(), &wanted).unwrap().is_empty());

        let without_crd = PRINTED.replace("name: v1, storage: true", "name: v1beta1, storage: true");
        fs::write(folder.path().join("config/crds/mine.yaml"), "by hand\n").unwrap();
        let wanted = files(&project(), folder.path(), &without_crd).unwrap();
        let changed = change(folder.path(), &wanted).unwrap();
        assert_eq!(changed.removed, [PathBuf::from("config/crds/cluster_v1_cdncluster.yaml")]);
        changed.carry_out(folder.path()).unwrap();
        assert!(folder.path().join("config/crds/cluster_v1beta1_cdncluster.yaml").exists());
        assert!(folder.path().join("config/crds/mine.yaml").exists(), "what is not ours stays");

        fs::write(folder.path().join("config/kustomization.yaml"), "by hand\n").unwrap();
        let refused = change(folder.path(), &wanted).unwrap_err().to_string();
        assert!(refused.starts_with("config/kustomization.yaml is there already"), "{refused}");
        assert!(refused.ends_with("Move it away"), "{refused}");
    }
}
