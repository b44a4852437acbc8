//! Names: of projects, groups, versions and kinds. What cannot work is refused here, with the reason, and not by a
//! compiler or an API server later.

use crate::error::{Error, Result};

/// Types and traits that the generated code has for something else, or that everything in Rust has.
const USED_BY_THE_CODE: [&str; 76] = [
    "Api",
    "Arc",
    "AsMut",
    "AsRef",
    "Box",
    "Clone",
    "Condition",
    "Conditions",
    "Container",
    "Controller",
    "Copy",
    "CustomResource",
    "CustomResourceDefinition",
    "CustomResourceExt",
    "Debug",
    "Default",
    "Deployment",
    "DeploymentSeen",
    "Deserialize",
    "DeserializeOwned",
    "DoubleEndedIterator",
    "Drop",
    "Eq",
    "Err",
    "Event",
    "EventType",
    "ExactSizeIterator",
    "ExitCode",
    "Extend",
    "Failure",
    "Fn",
    "FnMut",
    "FnOnce",
    "From",
    "FromIterator",
    "Future",
    "Into",
    "IntoFuture",
    "IntoIterator",
    "Iterator",
    "JsonSchema",
    "Manager",
    "NoAction",
    "None",
    "ObjectMeta",
    "Ok",
    "Operator",
    "Option",
    "Ord",
    "PartialEq",
    "PartialOrd",
    "Place",
    "Plan",
    "PodTemplateSpec",
    "Reference",
    "Request",
    "ResourceExt",
    "Result",
    "Seen",
    "Self",
    "Send",
    "Serialize",
    "Sized",
    "Some",
    "String",
    "Sync",
    "Timestamp",
    "ToOwned",
    "ToString",
    "TryFrom",
    "TryInto",
    "Unpin",
    "Value",
    "Vec",
    "Webhooks",
    "World",
];

/// What no module can be called: the keywords of Rust, and those that it keeps for later.
const KEYWORDS: [&str; 51] = [
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do", "dyn",
    "else", "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop",
    "macro", "match", "mod", "move", "mut", "override", "priv", "pub", "ref", "return", "self", "static",
    "struct", "super", "trait", "true", "try", "type", "typeof", "unsafe", "unsized", "use", "virtual",
    "where", "while", "yield",
];

/// Modules that Cargo or the generated code has for something else: `src/main.rs`, `src/bin/`, and the crates that are used.
const OTHER_MODULES: [&str; 12] = [
    "alloc",
    "bin",
    "core",
    "k8s_openapi",
    "kube",
    "lib",
    "main",
    "schemars",
    "serde",
    "serde_json",
    "std",
    "wheelhouse",
];

/// Modules that a kind's own module has inside: two of one name, one in the other, are what clippy warns of.
const INNER_MODULES: [&str; 5] = ["admission", "analyse", "api", "conversion", "observe"];

/// A DNS label, or several with dots between them.
fn check_dns(what: &'static str, name: &str, needs_dot: bool) -> Result<()> {
    let is_label = |label: &str| {
        let is_inside =
            |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
        !label.is_empty()
            && label.len() <= 63
            && label.chars().all(is_inside)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if name.is_empty() {
        return Err(Error::name(what, name, "it is empty"));
    }
    if name.len() > 200 {
        return Err(Error::name(what, name, "it is longer than 200 characters"));
    }
    if let Some(label) = name.split('.').find(|label| !is_label(label)) {
        let why = format!(
            "`{label}` is no part of a DNS name: lower-case letters, digits and `-`, at most 63, beginning and ending with a \
             letter or digit"
        );
        return Err(Error::name(what, name, why));
    }
    match needs_dot && !name.contains('.') {
        true => Err(Error::name(what, name, "it needs a dot, as in `example.com`")),
        false => Ok(()),
    }
}

/// A domain such as `example.com`.
///
/// # Errors
/// When it is no DNS name, or is one that Kubernetes keeps for itself.
pub fn check_domain(domain: &str) -> Result<()> {
    check_dns("the domain", domain, true)?;
    let is_kept = |kept: &str| domain == kept || domain.ends_with(&format!(".{kept}"));
    match is_kept("k8s.io") || is_kept("kubernetes.io") {
        true => Err(Error::name("the domain", domain, "Kubernetes keeps it for itself")),
        false => Ok(()),
    }
}

/// The name of a project: images, Deployments, ServiceAccounts and the package are called after it.
///
/// # Errors
/// When it cannot be all of these.
pub fn check_project(name: &str) -> Result<()> {
    const WHAT: &str = "the name";
    check_dns(WHAT, name, false)?;
    if name.contains('.') || name.len() > 40 {
        return Err(Error::name(WHAT, name, "a package is called so: at most 40 characters, and no dot"));
    }
    if !name.starts_with(|letter: char| letter.is_ascii_lowercase()) {
        return Err(Error::name(WHAT, name, "a package begins with a letter"));
    }
    Ok(())
}

/// Where images are, such as `registry.example.com/team`.
///
/// # Errors
/// When no name of an image can begin so.
pub fn check_images(images: &str) -> Result<()> {
    let is_inside =
        |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || "-_.:".contains(letter);
    let is_part = |part: &str| !part.is_empty() && part.chars().all(is_inside);
    match images.split('/').all(is_part) {
        true => Ok(()),
        false => {
            let why = "it is a registry and a folder in it, such as `registry.example.com/team`";
            Err(Error::name("the place of images", images, why))
        }
    }
}

/// The first part of a group; the domain is the rest, or all of it where there is no first part.
///
/// # Errors
/// When it is no DNS name.
pub fn check_group(group: &str, domain: &str) -> Result<()> {
    const WHAT: &str = "the group";
    if group.is_empty() {
        return Ok(());
    }
    check_dns(WHAT, group, false)?;
    if group == domain {
        let why = "the domain is added to it: say `--group app`, or `--group \"\"` for the domain alone";
        return Err(Error::name(WHAT, group, why));
    }
    if let Some(short) = group.strip_suffix(&format!(".{domain}")) {
        return Err(Error::name(WHAT, group, format!("the domain is added to it: say `--group {short}`")));
    }
    match group.len() + domain.len() > 200 {
        true => Err(Error::name(WHAT, group, "with the domain it is longer than 200 characters")),
        false => Ok(()),
    }
}

/// A version such as `v1`, `v1beta2` or `v2alpha1`.
///
/// # Errors
/// When it is something else.
pub fn check_version(version: &str) -> Result<()> {
    let number = |text: &str| {
        !text.is_empty() && !text.starts_with('0') && text.chars().all(|one| one.is_ascii_digit())
    };
    let is_version = version.strip_prefix('v').is_some_and(|rest| {
        match rest.find(|letter: char| !letter.is_ascii_digit()) {
            None => number(rest),
            Some(at) => {
                let (major, stage) = rest.split_at(at);
                let minor = stage.strip_prefix("alpha").or_else(|| stage.strip_prefix("beta"));
                number(major) && minor.is_some_and(number)
            }
        }
    });
    match is_version {
        true if version.len() > 63 => {
            Err(Error::name("the version", version, "it is longer than 63 characters"))
        }
        true => Ok(()),
        false => Err(Error::name("the version", version, "versions are like `v1`, `v1beta2` or `v2alpha1`")),
    }
}

/// A kind such as `CdnCluster`.
///
/// # Errors
/// When it is no name of a Rust type, or one that the generated code needs for something else.
pub fn check_kind(kind: &str) -> Result<()> {
    const WHAT: &str = "the kind";
    let mut letters = kind.chars();
    let is_type = letters.next().is_some_and(|first| first.is_ascii_uppercase())
        && letters.all(|letter| letter.is_ascii_alphanumeric());
    if !is_type || kind.len() > 50 {
        let why = "a kind is like `CdnCluster`: letters and digits, beginning with a capital, at most 50";
        return Err(Error::name(WHAT, kind, why));
    }
    if USED_BY_THE_CODE.contains(&kind) {
        return Err(Error::name(WHAT, kind, "the generated code uses a type of that name: choose another"));
    }
    let module = module_of(kind);
    let is_in = |names: &[&str]| names.contains(&module.as_str());
    let why = match () {
        () if is_in(&KEYWORDS) => {
            format!("its module would be called `{module}`, which is a word of Rust: choose another")
        }
        () if is_in(&OTHER_MODULES) => {
            format!(
                "its module would be `src/{module}.rs`, which is there for something else: choose another"
            )
        }
        () if is_in(&INNER_MODULES) || check_version(&module).is_ok() => {
            format!(
                "its module would be called `{module}`, as one of those in a kind's own module: choose another"
            )
        }
        () => return Ok(()),
    };
    Err(Error::name(WHAT, kind, why))
}

/// A plural such as `cdnclusters`.
///
/// # Errors
/// When it is no DNS label that begins with a letter.
pub fn check_plural(plural: &str) -> Result<()> {
    check_dns("the plural", plural, false)?;
    match () {
        () if plural.contains('.') => Err(Error::name("the plural", plural, "it is one word, without dots")),
        () if !plural.starts_with(|first: char| first.is_ascii_lowercase()) => {
            Err(Error::name("the plural", plural, "it begins with a letter"))
        }
        () => Ok(()),
    }
}

/// The English plural of a kind, in lower case.
pub fn plural_of(kind: &str) -> String {
    let singular = kind.to_ascii_lowercase();
    let ends = |endings: &[&str]| endings.iter().any(|ending| singular.ends_with(ending));
    if ends(&["s", "x", "z", "ch", "sh"]) {
        return format!("{singular}es");
    }
    match singular.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'i', 'o', 'u']) => format!("{stem}ies"),
        _ => format!("{singular}s"),
    }
}

/// The name of a kind as that of a module: `CdnCluster` is `cdn_cluster`, `HTTPRoute` is `http_route`.
pub fn module_of(kind: &str) -> String {
    let letters: Vec<char> = kind.chars().collect();
    let mut module = String::new();
    for (index, letter) in letters.iter().enumerate() {
        let before = index.checked_sub(1).and_then(|before| letters.get(before));
        let next = letters.get(index + 1);
        let begins_a_word = letter.is_ascii_uppercase()
            && before.is_some_and(|before| {
                !before.is_ascii_uppercase() || next.is_some_and(|next| next.is_ascii_lowercase())
            });
        if begins_a_word {
            module.push('_');
        }
        module.push(letter.to_ascii_lowercase());
    }
    module
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("CdnCluster", "cdn_cluster", "cdnclusters")]
    #[case("Gordon", "gordon", "gordons")]
    #[case("HTTPRoute", "http_route", "httproutes")]
    #[case("Policy", "policy", "policies")]
    #[case("Gateway", "gateway", "gateways")]
    #[case("Box", "box", "boxes")]
    #[case("Batch", "batch", "batches")]
    #[case("Etcd3Cluster", "etcd3_cluster", "etcd3clusters")]
    fn a_kind_has_a_module_and_a_plural(#[case] kind: &str, #[case] module: &str, #[case] plural: &str) {
        assert_eq!((module_of(kind).as_str(), plural_of(kind).as_str()), (module, plural));
    }

    #[rstest]
    #[case::domain(check_domain("example.com"))]
    #[case::long_domain(check_domain("team-a.apps.example.com"))]
    #[case::project(check_project("cdn"))]
    #[case::group(check_group("cluster", "example.com"))]
    #[case::group_that_is_the_domain(check_group("", "example.com"))]
    #[case::group_with_a_dot(check_group("storage.cluster", "example.com"))]
    #[case::version(check_version("v1"))]
    #[case::images(check_images("registry.example.com:5000/team"))]
    #[case::beta(check_version("v12beta3"))]
    #[case::kind(check_kind("CdnCluster"))]
    #[case::kind_with_a_version_in_it(check_kind("V2Cluster"))]
    #[case::longest_version(check_version(&format!("v1{}", "0".repeat(61))))]
    fn good_names_are_taken(#[case] checked: Result<()>) {
        checked.unwrap();
    }

    /// Whoever adds a name to a template adds it here, too.
    #[test]
    fn no_kind_is_called_as_what_a_template_imports() {
        for (template, text) in crate::template::texts() {
            let text =
                format!("\n{}", text.replace("{{ api.kind }}", "KIND")).replace("\n    use ", "\nuse ");
            let imports = text.split("\nuse ").skip(1).filter_map(|rest| rest.split(';').next());
            let words = imports.flat_map(|import| import.split(|letter: char| !letter.is_alphanumeric()));
            let is_type = |word: &&str| word.starts_with(char::is_uppercase) && !word.starts_with("KIND");
            for name in words.filter(is_type) {
                assert!(check_kind(name).is_err(), "{template} imports {name}");
            }
        }
    }

    /// Whoever adds a module to that of a kind adds it here, too.
    #[test]
    fn no_kind_is_called_as_a_module_in_its_own() {
        let paths =
            crate::template::texts().filter_map(|(path, _)| path.strip_prefix("src/{{ api.module }}/"));
        let inner: Vec<_> = paths.filter_map(|path| path.strip_suffix(".rs")).collect();
        assert!(inner.contains(&"observe"), "{inner:?}");
        for module in inner {
            assert!(INNER_MODULES.contains(&module), "a kind's module has {module} inside");
        }
    }

    #[rstest]
    #[case::domain_without_dot(check_domain("example"), "it needs a dot")]
    #[case::domain_in_capitals(check_domain("Example.com"), "`Example` is no part of a DNS name")]
    #[case::kubernetes_own(check_domain("apps.k8s.io"), "Kubernetes keeps it for itself")]
    #[case::empty(check_project(""), "it is empty")]
    #[case::dotted(check_project("a.b"), "no dot")]
    #[case::digit_first(check_project("1cdn"), "begins with a letter")]
    #[case::group_with_domain(check_group("cluster.example.com", "example.com"), "say `--group cluster`")]
    #[case::group_is_domain(
        check_group("example.com", "example.com"),
        "say `--group app`, or `--group \"\"`"
    )]
    #[case::group_in_capitals(check_group("Cluster", "example.com"), "no part of a DNS name")]
    #[case::version_without_v(check_version("1"), "versions are like")]
    #[case::version_zero(check_version("v0"), "versions are like")]
    #[case::version_gamma(check_version("v1gamma1"), "versions are like")]
    #[case::version_beta_without_number(check_version("v1beta"), "versions are like")]
    #[case::kind_in_lower_case(check_kind("cdncluster"), "a kind is like `CdnCluster`")]
    #[case::kind_with_a_dash(check_kind("Cdn-Cluster"), "a kind is like `CdnCluster`")]
    #[case::kind_that_the_code_uses(check_kind("Deployment"), "uses a type of that name")]
    #[case::kind_that_everything_uses(check_kind("Iterator"), "uses a type of that name")]
    #[case::kind_of_a_keyword(check_kind("Type"), "called `type`, which is a word of Rust")]
    #[case::kind_of_another_keyword(check_kind("Match"), "called `match`, which is a word of Rust")]
    #[case::kind_of_a_keyword_to_be(check_kind("Virtual"), "called `virtual`, which is a word of Rust")]
    #[case::kind_of_a_new_keyword(check_kind("Gen"), "called `gen`, which is a word of Rust")]
    #[case::kind_of_the_program(check_kind("Main"), "`src/main.rs`, which is there for something else")]
    #[case::kind_of_the_library(check_kind("Lib"), "`src/lib.rs`, which is there for something else")]
    #[case::kind_of_other_programs(check_kind("Bin"), "`src/bin.rs`, which is there for something else")]
    #[case::kind_of_an_inner_module(
        check_kind("Observe"),
        "called `observe`, as one of those in a kind's own"
    )]
    #[case::kind_of_another_inner_module(check_kind("Analyse"), "called `analyse`, as one of those")]
    #[case::kind_of_what_another_version_adds(
        check_kind("Conversion"),
        "called `conversion`, as one of those"
    )]
    #[case::kind_of_what_a_webhook_adds(check_kind("Admission"), "called `admission`, as one of those")]
    #[case::kind_of_a_version(check_kind("V2"), "called `v2`, as one of those")]
    #[case::kind_of_another_version(check_kind("V1beta1"), "called `v1beta1`, as one of those")]
    #[case::version_that_is_too_long(check_version(&format!("v1{}", "0".repeat(62))), "longer than 63 characters")]
    #[case::kind_of_a_crate(
        check_kind("Wheelhouse"),
        "`src/wheelhouse.rs`, which is there for something else"
    )]
    #[case::images_with_a_scheme(
        check_images("https://registry.example.com"),
        "a registry and a folder in it"
    )]
    #[case::images_that_end_in_a_slash(
        check_images("registry.example.com/"),
        "a registry and a folder in it"
    )]
    #[case::plural_with_a_digit_first(check_plural("1books"), "it begins with a letter")]
    #[case::plural_in_capitals(check_plural("CdnClusters"), "no part of a DNS name")]
    fn bad_names_are_refused_with_the_reason(#[case] checked: Result<()>, #[case] words: &str) {
        let error = checked.unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}
