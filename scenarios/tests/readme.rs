//! The documentation's examples and the project's own scenarios are read without a complaint.

use std::path::Path;

use scenarios::LoadError;

fn directory() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The TOML blocks of the README.
fn examples() -> Vec<String> {
    let readme = std::fs::read_to_string(directory().join("README.md")).unwrap();
    let blocks = readme.split("```toml\n").skip(1);
    blocks.map(|block| block.split("```").next().unwrap().to_owned()).collect()
}

#[test]
fn every_example_of_the_readme_is_right() {
    let examples = examples();
    assert!(examples.len() >= 6, "{}", examples.len());
    for (number, text) in examples.iter().enumerate() {
        let path = directory().join(format!("example-{number}.toml"));
        match scenarios::load::parse(&path, text, &[]) {
            Ok(cases) => assert!(!cases.is_empty()),
            Err(LoadError::Mistake(mistake)) => panic!("{}\n{text}", mistake.one_line()),
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn the_matrix_of_the_readme_has_the_cases_that_it_tells_of() {
    let text = examples().into_iter().find(|text| text.contains("[matrix]")).unwrap();
    let cases = scenarios::load::parse(&directory().join("m.toml"), &text, &[]).unwrap();
    let names: Vec<String> = cases.iter().map(|case| format!("{} {}", case.kernel, case.name)).collect();
    assert_eq!(
        names,
        [
            "debian:6.12 m[mtu=1500,load=short]",
            "debian:6.12 m[mtu=1500,load=long]",
            "debian:6.12 m[mtu=9000,load=short]",
            "debian:6.12 m[mtu=9000,load=long]",
            "debian:6.1 m[mtu=1500,load=short]",
            "debian:6.1 m[mtu=9000,load=short]",
        ]
    );
    let run = cases[3].steps[0].get_ref().run.as_ref().unwrap().get_ref().as_str();
    assert_eq!(run, "sleep 5; echo ${HOME} 9014");
    assert_eq!(cases[3].namespaces["left"].get_ref().gso_max_size, Some(185_000));
}

#[test]
fn the_projects_own_scenarios_are_right_and_have_names_of_their_own() {
    let mut all = Vec::new();
    for path in scenarios::discover(&[directory().to_owned()]).unwrap() {
        match scenarios::load(&path, &[]) {
            Ok(cases) => all.extend(cases),
            Err(LoadError::Mistake(mistake)) => panic!("{}", mistake.one_line()),
            Err(other) => panic!("{other}"),
        }
    }
    assert!(all.iter().any(|scenario| scenario.name == "gve-big-tcp[mtu=9000]"));
    scenarios::check_names(&all).unwrap();
}
