use super::*;

#[test]
fn only_a_folder_that_is_called_after_a_lineage_is_an_agents() {
    let place = Path::new("/there");
    let lineage = LineageId(0x12ab_34cd);
    assert_eq!(folder_of(place, &lineage.to_string()), Ok(place.join(lineage.to_string())));
    for other in ["", ".", "..", "repo.git", "lock", "tree", "../x", "/etc", "12AB34CD ", "0"] {
        assert!(folder_of(place, other).is_err(), "{other:?}");
    }
}

#[test]
fn what_stays_is_what_is_no_folder_what_has_changed_and_what_runs() {
    let place = std::env::temp_dir().join(format!("svc-tidy-{}", std::process::id()));
    let _ = fs::remove_dir_all(&place);
    let (work, other) = (place.join("00000001"), place.join("other"));
    fs::create_dir_all(work.join("run-1")).unwrap();
    fs::create_dir_all(&other).unwrap();
    fs::write(work.join("run-1/keeper.log"), "words").unwrap();
    fs::write(other.join("file"), "a person's").unwrap();
    std::os::unix::fs::symlink(&other, work.join("run-2")).unwrap();
    std::os::unix::fs::symlink(&other, place.join("00000002")).unwrap();
    let processes = Processes::start().unwrap();
    let clear = |name: &str, tip: &str| super::clear(&processes, &place, &place.join(name), tip);
    assert!(clear("00000002", NONE).is_err_and(|why| why.contains("no folder")));
    assert_eq!(clear("00000003", NONE), Ok(()), "it is gone already");
    assert_eq!(clear("00000001", KEEP), Ok(()));
    assert!(work.exists() && !work.join("run-1").exists() && work.join("run-2").exists());
    fs::create_dir_all(work.join("tree")).unwrap();
    assert!(clear("00000001", NONE).is_err_and(|why| why.contains("changed")), "git does not know it");
    fs::remove_dir(work.join("tree")).unwrap();
    assert_eq!(clear("00000001", NONE), Ok(()));
    assert!(!work.exists());
    assert_eq!(fs::read_to_string(other.join("file")).unwrap(), "a person's", "no link is followed");
    fs::remove_dir_all(&place).unwrap();
}
