package main

import (
	"debug/elf"
	"fmt"
	"os/exec"
	"regexp"
)

// lddLine matches "libm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x…)" and "/lib64/ld-linux… (0x…)".
var (
	lddLine    = regexp.MustCompile(`(?m)^\s+(?:\S+ => )?(/\S+) \(0x[0-9a-f]+\)$`)
	lddMissing = regexp.MustCompile(`(?m)^\s+(\S+) => not found$`)
)

// addBinary adds a program and, at the paths where the loader looks for them, its shared libraries.
func (l *layer) addBinary(source, name string) error {
	libraries, err := sharedLibraries(source)
	if err != nil {
		return err
	}
	for _, library := range libraries {
		if err := l.addPath(library, library); err != nil {
			return err
		}
	}
	return l.addPath(source, name)
}

// sharedLibraries lists, by absolute path, all that the loader would map for a program, the loader
// included; nothing for a static program.
func sharedLibraries(program string) ([]string, error) {
	file, err := elf.Open(program)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", program, err)
	}
	defer file.Close()
	needed, err := file.ImportedLibraries()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", program, err)
	}
	if len(needed) == 0 {
		return nil, nil
	}
	output, err := exec.Command("ldd", program).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("ldd %s: %w: %s", program, err, output)
	}
	if missing := lddMissing.FindSubmatch(output); missing != nil {
		return nil, fmt.Errorf("%s: shared library %s is not on this machine", program, missing[1])
	}
	var paths []string
	for _, match := range lddLine.FindAllSubmatch(output, -1) {
		paths = append(paths, string(match[1]))
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("ldd %s listed no paths: %s", program, output)
	}
	return paths, nil
}
