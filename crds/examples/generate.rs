//! Writes the CRDs into the folder that is named first, one file a kind, and the reference of the API into the file
//! that is named second: what `cargo xtask generate` runs.

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = PathBuf::from(std::env::args().nth(1).ok_or("name the folder to write into")?);
    for (name, text) in hone_crds::generate::crds()? {
        std::fs::write(folder.join(name), text)?;
    }
    let page = std::env::args().nth(2).ok_or("name the file to write the reference into")?;
    std::fs::write(page, hone_crds::reference::page())?;
    Ok(())
}
