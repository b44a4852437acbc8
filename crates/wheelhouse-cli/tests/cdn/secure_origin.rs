//! Origins that speak TLS: asked only if they are who they say.

use super::{
    CLUSTER, Cdn, MINUTE, NGINX, RESTRICTED,
    support::{eventually, http},
};

const NAME: &str = "secure.default.svc.cluster.local";

/// A certificate for a name, and a Secret with it, and with itself as the authority.
pub(super) fn certificate(secret: &str, name: &str) -> (rustls::pki_types::CertificateDer<'static>, String) {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    let indented = |text: String| text.lines().map(|line| format!("    {line}\n")).collect::<String>();
    let (certificate, key) = (indented(made.cert.pem()), indented(made.signing_key.serialize_pem()));
    let text = format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: {secret}}}\ntype: kubernetes.io/tls\nstringData:\n  ca.crt: |\n{certificate}  tls.crt: |\n{certificate}  tls.key: |\n{key}"
    );
    (made.cert.der().clone(), text)
}

fn server() -> String {
    format!(
        r#"
apiVersion: v1
kind: ConfigMap
metadata: {{name: secure}}
data:
  nginx.conf: |
{NGINX}
      ssl_certificate /certificate/tls.crt;
      ssl_certificate_key /certificate/tls.key;
      server {{
        listen 8443 ssl;
        default_type text/plain;
        location / {{ return 200 "$ssl_server_name $host $request_uri\n"; }}
      }}
    }}
---
apiVersion: v1
kind: Pod
metadata: {{name: secure, labels: {{app: secure}}}}
spec:
  containers:
  - name: nginx
    image: wheelhouse.dev/nginx:0.1.0
    args: [-c, /config/nginx.conf]
    volumeMounts: [{{name: config, mountPath: /config}}, {{name: certificate, mountPath: /certificate}}]
    readinessProbe: {{tcpSocket: {{port: 8443}}, periodSeconds: 1}}
    securityContext: {RESTRICTED}
  volumes:
  - {{name: config, configMap: {{name: secure}}}}
  - {{name: certificate, secret: {{secretName: secure}}}}
---
apiVersion: v1
kind: Service
metadata: {{name: secure}}
spec: {{selector: {{app: secure}}, ports: [{{port: 443, targetPort: 8443}}]}}
"#
    )
}

pub(super) fn is_asked_only_if_it_is_who_it_says(cdn: &Cdn) {
    let apply = |text: &str| cdn.wheelhouse.apply(CLUSTER, text);
    apply(&certificate("secure", NAME).1);
    apply(&certificate("stranger", NAME).1);
    apply(&server());
    cdn.kubectl(&["wait", "--for=condition=Ready", "pod/secure", "--timeout=60s"]);
    let cache = |name: &str, tls: &str| {
        apply(&format!(
            "apiVersion: cluster.anevia.com/v1\nkind: CdnCluster\nmetadata: {{name: {name}}}\nspec:\n  role: cache\n  replicas: 1\n  sources: [{{name: origin, origin: {{scheme: https, host: {NAME}, tls: {tls}}}}}]\n"
        ));
        cdn.wait_for_state(name, "Ready");
        let address = cdn.address(name);
        move |path: &str| http::get(&address, path).unwrap()
    };
    let trusting = cache("trusting", "{caSecret: secure}");
    let answer = eventually(MINUTE, || trusting("/a"), |answer| answer.status == 200);
    assert_eq!(answer.body, format!("{NAME} {NAME} /a\n"));
    for (name, tls) in [("of-a-stranger", "{caSecret: stranger}"), ("of-nobody", "{}")] {
        let answer = cache(name, tls)("/a");
        println!("an origin whose certificate is {name}: {} {}", answer.status, answer.body.trim());
        assert_eq!(answer.status, 502, "{answer:?}");
    }
    let answer = cache("careless", "{insecureSkipVerify: true}")("/a");
    assert_eq!(answer.status, 200, "{answer:?}");
    cdn.kubectl(&["delete", "cdncluster", "trusting", "of-a-stranger", "of-nobody", "careless"]);
    cdn.kubectl(&["delete", "pod/secure", "service/secure", "configmap/secure", "--wait=false"]);
}
