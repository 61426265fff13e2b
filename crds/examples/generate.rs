//! Writes the CRDs into the folder that is named, one file a kind: what `cargo xtask generate` runs.

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = PathBuf::from(std::env::args().nth(1).ok_or("name the folder to write into")?);
    for (name, text) in hone_crds::generate::crds()? {
        std::fs::write(folder.join(name), text)?;
    }
    Ok(())
}
