//! The tree of layers, beside a device's log: what an offline check has to know, since only the configuration tells which
//! layer lies on which. Written before the data plane hears of a change.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use azekura_base::LayerId;

/// Name of the file in a device's folder: a JSON list of pairs, a layer and the layer below it.
const NAME: &str = "layers.json";

/// Writes the tree into a device's folder, all of it or nothing.
///
/// # Errors
/// When the file can't be written; the former one stays.
pub fn write(folder: &Path, parents: &BTreeMap<LayerId, LayerId>) -> io::Result<()> {
    let pairs: Vec<(LayerId, LayerId)> = parents.iter().map(|(layer, parent)| (*layer, *parent)).collect();
    let new = folder.join(format!("{NAME}.new"));
    std::fs::write(&new, serde_json::to_vec(&pairs)?)?;
    std::fs::rename(new, folder.join(NAME))
}

/// Reads it back; a device that was never told of layers has none.
///
/// # Errors
/// When there is a file that can't be read.
pub fn read(folder: &Path) -> io::Result<Vec<(LayerId, LayerId)>> {
    let bytes = match std::fs::read(folder.join(NAME)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        bytes => bytes?,
    };
    let pairs: Vec<(LayerId, LayerId)> = serde_json::from_slice(&bytes)?;
    match pairs.iter().find(|(layer, parent)| layer == parent) {
        Some((layer, _)) => Err(io::Error::other(format!("layer {layer} lies on itself"))),
        None => Ok(pairs),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let folder = std::env::temp_dir().join(format!("azekura-layers-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let _ = std::fs::remove_file(folder.join(NAME));
        assert_eq!(read(&folder).unwrap(), []);
        let parents = BTreeMap::from([(LayerId(3), LayerId(1)), (LayerId(9), LayerId(3))]);
        write(&folder, &parents).unwrap();
        assert_eq!(read(&folder).unwrap(), [(LayerId(3), LayerId(1)), (LayerId(9), LayerId(3))]);
        write(&folder, &BTreeMap::new()).unwrap();
        assert_eq!(read(&folder).unwrap(), []);
        for bad in ["", "{}", "[[1]]", "[[2,2]]", "[[1,-1]]"] {
            std::fs::write(folder.join(NAME), bad).unwrap();
            assert!(read(&folder).is_err(), "{bad}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
