//! The stand-ins for Google Cloud Storage and Azure Blob Storage refuse what the real ones refuse: a
//! second creation of an object, which the tuning log's compare-and-swap builds upon.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use hone_cluster_tests::{Capability, ClusterOptions, Context, Suite};

/// Runs `curl` and returns the HTTP status, then the body.
fn curl(arguments: &[&str]) -> Result<(String, String)> {
    let output = Command::new("curl")
        .args(["-s", "-m", "20", "-w", "\n%{http_code}"])
        .args(arguments)
        .output()
        .context("cannot run curl")?;
    let text = String::from_utf8(output.stdout)?;
    let (body, status) = text.rsplit_once('\n').context("curl printed no status")?;
    Ok((status.to_owned(), body.to_owned()))
}

fn google_writes_are_conditional(context: &Context<'_>) -> Result<()> {
    let endpoint = context.cluster.variable("HONE_GCS_ENDPOINT")?;
    let name = &context.namespace;
    let upload = format!(
        "{endpoint}/upload/storage/v1/b/artifacts/o?uploadType=media&name={name}&ifGenerationMatch=0"
    );
    let (status, body) = curl(&["-X", "POST", "-d", "one", &upload])?;
    ensure!(status == "200", "create answered {status}: {body}");
    let (status, _) = curl(&["-X", "POST", "-d", "two", &upload])?;
    ensure!(status == "412", "a second create answered {status}");
    let (_, body) = curl(&[&format!("{endpoint}/storage/v1/b/artifacts/o/{name}?alt=media")])?;
    ensure!(body == "one", "{body:?}");
    Ok(())
}

/// Signs an account's shared access signature for Azurite's well-known account, with Node.js, which
/// Azurite itself needs.
const SIGN: &str = "
const key = Buffer.from('Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==', 'base64');
const fields = {sp: 'rwdlac', ss: 'b', srt: 'sco', st: '', se: '2099-01-01T00:00:00Z', sip: '', spr: 'https,http', sv: '2020-10-02'};
const text = ['devstoreaccount1', ...Object.values(fields)].join('\\n') + '\\n';
const sig = require('crypto').createHmac('sha256', key).update(text, 'utf8').digest('base64');
process.stdout.write(Object.entries({...fields, sig}).filter(([, v]) => v).map(([k, v]) => k + '=' + encodeURIComponent(v)).join('&'));
";

fn azure_writes_are_conditional(context: &Context<'_>) -> Result<()> {
    let endpoint = context.cluster.variable("HONE_AZURE_ENDPOINT")?;
    let signed = Command::new("node").args(["-e", SIGN]).output().context("cannot run node")?;
    let signature = String::from_utf8(signed.stdout)?;
    let container = format!("{endpoint}/devstoreaccount1/{}", context.namespace);
    let (status, body) =
        curl(&["-X", "PUT", "-d", "", &format!("{container}?restype=container&{signature}")])?;
    ensure!(status == "201", "creating a container answered {status}: {body}");
    let blob = format!("{container}/b?{signature}");
    let put = |condition: &str, body: &str| {
        curl(&["-X", "PUT", "-H", "x-ms-blob-type: BlockBlob", "-H", condition, "-d", body, &blob])
    };
    let (status, body) = put("If-None-Match: *", "one")?;
    ensure!(status == "201", "create answered {status}: {body}");
    let (status, _) = put("If-None-Match: *", "two")?;
    ensure!(status == "409", "a second create answered {status}");
    let (status, _) = put("If-Match: \"0x0\"", "two")?;
    ensure!(status == "412", "a stale compare-and-swap answered {status}");
    let (_, body) = curl(&[&blob])?;
    ensure!(body == "one", "{body:?}");
    Ok(())
}

fn main() {
    let options = ClusterOptions { clouds: true, ..ClusterOptions::default() };
    Suite::new("clouds", options)
        .needs(&[Capability::Plane, Capability::Clouds])
        .test("google_writes_are_conditional", google_writes_are_conditional)
        .test("azure_writes_are_conditional", azure_writes_are_conditional)
        .main();
}
