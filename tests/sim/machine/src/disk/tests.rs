use std::fs;

use super::*;
use crate::{Machine, enter};

struct Still;

impl Machine for Still {
    fn wall(&self) -> u64 {
        0
    }

    fn uptime(&self) -> u64 {
        0
    }

    fn random(&self) -> u64 {
        0
    }
}

/// A disk, and a thread that counts.
fn disk(name: &str) -> io::Result<(PathBuf, Disk)> {
    let root = std::env::temp_dir().join(format!("dwell-machine-{}-{name}", std::process::id()));
    fs::create_dir_all(&root)?;
    enter(Some(Box::new(Still)));
    Ok((root.clone(), Disk::new(&root, 1)?))
}

fn synced(path: &Path, bytes: &[u8]) -> io::Result<File> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    File::open(path.parent().unwrap_or(path))?.sync_all()?;
    Ok(file)
}

#[test]
fn a_power_cut_leaves_what_was_synced() -> io::Result<()> {
    let (root, disk) = disk("power")?;
    let mut file = synced(&root.join("kept"), b"old")?;
    file.write_all(b" and new")?;
    fs::write(root.join("lost"), "never synced")?;
    fs::rename(root.join("kept"), root.join("renamed"))?;
    disk.lose_power(0, Keep::Nothing);
    assert!(!disk.is_without_power());
    file.sync_all()?;
    assert!(disk.is_without_power());
    fs::write(root.join("later"), "after the end")?;
    disk.restore()?;
    let names: Vec<_> = fs::read_dir(&root)?.map(|entry| entry.map(|entry| entry.file_name())).collect();
    assert_eq!(names.len(), 1);
    assert_eq!(fs::read(root.join("kept"))?, b"old");
    // What was left is durable, also through the next one.
    disk.lose_power(0, Keep::Nothing);
    disk.lose_power_now();
    disk.restore()?;
    assert_eq!(fs::read(root.join("kept"))?, b"old");
    disk.wipe()?;
    assert_eq!(fs::read_dir(&root)?.count(), 0);
    drop(disk);
    fs::remove_dir_all(root)
}

#[test]
fn a_torn_file_has_a_part_of_what_was_not_synced() -> io::Result<()> {
    let (root, disk) = disk("torn")?;
    let mut lengths = std::collections::BTreeSet::new();
    for number in 0..20 {
        let path = root.join(format!("file-{number}"));
        let mut file = synced(&path, b"synced")?;
        file.write_all(&[7; 2_000])?;
        disk.lose_power(0, Keep::Beginning);
        disk.lose_power_now();
        disk.restore()?;
        let left = fs::read(&path)?;
        assert!(left.starts_with(b"synced") && left.len() <= 2_006);
        assert!(left[6..].iter().all(|byte| *byte == 7));
        lengths.insert(left.len());
    }
    assert!(lengths.len() > 10, "{lengths:?}");
    drop(disk);
    fs::remove_dir_all(root)
}

#[test]
fn a_failed_sync_is_told_once_and_loses_what_it_covered() -> io::Result<()> {
    let (root, disk) = disk("sync")?;
    let mut file = synced(&root.join("file"), b"")?;
    let other = File::open(root.join("file"))?;
    file.write_all(&[7; 100_000])?;
    disk.fail_syncs(1, true);
    assert!(file.sync_data().is_err() && other.sync_data().is_err());
    file.sync_data()?;
    other.sync_data()?;
    assert_eq!(fs::metadata(root.join("file"))?.len(), 100_000);
    disk.lose_power(0, Keep::Everything);
    disk.lose_power_now();
    disk.restore()?;
    let left = fs::read(root.join("file"))?;
    assert!(left.contains(&0) && left.contains(&7));
    drop(disk);
    fs::remove_dir_all(root)
}

#[test]
fn a_full_disk_takes_what_needs_no_space() -> io::Result<()> {
    let (root, disk) = disk("full")?;
    let mut file = synced(&root.join("file"), &[1; 100])?;
    fs::write(root.join("reserve"), [0; 50])?;
    disk.set_free(Some(0), true);
    assert_eq!(file.write(b"more").map_err(|error| error.kind()), Err(io::ErrorKind::StorageFull));
    assert!(fs::write(root.join("new"), "").is_err());
    std::os::unix::fs::FileExt::write_all_at(&file, &[2; 100], 0)?;
    fs::remove_file(root.join("reserve"))?;
    assert_eq!(file.write(&[3; 60])?, 50);
    disk.set_free(None, true);
    file.write_all(&[3; 60])?;
    drop(disk);
    fs::remove_dir_all(root)
}

#[test]
fn writes_fail_while_the_disk_is_broken_and_bits_are_flipped_in_what_is_there() -> io::Result<()> {
    let (root, disk) = disk("broken")?;
    let mut file = synced(&root.join("file"), b"old")?;
    disk.set_broken(true);
    assert_eq!(file.write(b"new").map_err(|error| error.raw_os_error()), Err(Some(libc::EIO)));
    disk.set_broken(false);
    file.write_all(b"er")?;
    drop(file);
    disk.flip(1)?;
    let found = fs::read(root.join("file"))?;
    let flipped: u32 = found.iter().zip(b"older").map(|(there, was)| (there ^ was).count_ones()).sum();
    assert_eq!((found.len(), flipped), (5, 1));
    enter(None);
    drop(disk);
    fs::remove_dir_all(root)
}
