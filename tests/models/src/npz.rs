//! Reading `.npz` files.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result, bail};
use hone_types::{Element, Tensor};
use ndarray::{ArrayD, IxDyn, OwnedRepr};
use ndarray_npy::{NpzReader, ReadNpzError, ReadableElement};

/// The arrays of a file, by name.
pub fn read(path: &Path) -> Result<Vec<(String, Tensor)>> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let mut archive =
        NpzReader::new(file).with_context(|| format!("{} is no .npz", path.display()))?;
    let names = archive.names()?;
    let mut arrays = Vec::new();
    for name in names {
        let tensor = array(&mut archive, &name)
            .with_context(|| format!("array {name} of {}", path.display()))?;
        arrays.push((name.trim_end_matches(".npy").to_owned(), tensor));
    }
    Ok(arrays)
}

fn array(archive: &mut NpzReader<File>, name: &str) -> Result<Tensor> {
    // The reader says only by an error that an array is of another type than asked for.
    if let Ok(tensor) = typed::<f32>(archive, name) {
        return Ok(tensor);
    }
    if let Ok(tensor) = typed::<i64>(archive, name) {
        return Ok(tensor);
    }
    bail!("neither f32 nor i64");
}

fn typed<T>(archive: &mut NpzReader<File>, name: &str) -> Result<Tensor>
where
    T: ReadableElement + Element + Clone,
{
    let array: Result<ArrayD<T>, ReadNpzError> = archive.by_name::<OwnedRepr<T>, IxDyn>(name);
    let array = array?;
    let shape = array.shape().to_vec();
    let elements: Vec<T> = array.iter().cloned().collect();
    Ok(Tensor::from_elements(shape, &elements)?)
}
