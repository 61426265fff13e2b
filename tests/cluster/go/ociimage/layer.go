package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// layer is one tar file of an image. It is kept in memory: images here are some 100 MB at most.
type layer struct {
	buffer bytes.Buffer
	tar    *tar.Writer
	seen   map[string]bool // absolute paths in the image, of this layer and those below it
}

func newLayer() *layer {
	l := &layer{seen: map[string]bool{"/": true}}
	l.tar = tar.NewWriter(&l.buffer)
	return l
}

// inherit makes l leave out what the layer below it holds.
func (l *layer) inherit(below *layer) {
	for name := range below.seen {
		l.seen[name] = true
	}
}

// bytes ends the layer and returns its tar file.
func (l *layer) bytes() ([]byte, error) {
	err := l.tar.Close()
	return l.buffer.Bytes(), err
}

// put writes one entry, and its parent directories before it; an entry that is there already stays.
func (l *layer) put(name string, header tar.Header, data []byte) error {
	name = path.Clean("/" + name)
	if l.seen[name] {
		return nil
	}
	if err := l.put(path.Dir(name), directory(path.Dir(name)), nil); err != nil {
		return err
	}
	l.seen[name] = true
	header.Name = strings.TrimPrefix(name, "/")
	header.Format = tar.FormatPAX
	header.Size = int64(len(data))
	if err := l.tar.WriteHeader(&header); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	_, err := l.tar.Write(data)
	return err
}

func directory(name string) tar.Header {
	mode := int64(0o755)
	if name == "/tmp" {
		mode = 0o1777
	}
	return tar.Header{Typeflag: tar.TypeDir, Mode: mode}
}

// addPath adds a file (following a link to it) or a directory with all below it.
func (l *layer) addPath(source, name string) error {
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return l.addFile(source, name, info)
	}
	return filepath.WalkDir(source, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(source, file)
		if err != nil {
			return err
		}
		target := path.Join(name, filepath.ToSlash(relative))
		info, err := entry.Info()
		switch {
		case err != nil:
			return err
		case info.IsDir():
			return l.put(target, directory(target), nil)
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(file)
			if err != nil {
				return err
			}
			return l.addLink(to, target)
		case info.Mode().IsRegular():
			return l.addFile(file, target, info)
		}
		return fmt.Errorf("%s: neither a file, a directory nor a link", file)
	})
}

// addFile adds a regular file. Of its mode only "may be executed" is kept, so that the digest does
// not depend on the umask of who built it.
func (l *layer) addFile(source, name string, info fs.FileInfo) error {
	data, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	mode := int64(0o644)
	if info.Mode()&0o100 != 0 {
		mode = 0o755
	}
	return l.put(name, tar.Header{Typeflag: tar.TypeReg, Mode: mode}, data)
}

func (l *layer) addLink(target, name string) error {
	return l.put(name, tar.Header{Typeflag: tar.TypeSymlink, Mode: 0o777, Linkname: target}, nil)
}

func (l *layer) addText(name, text string) error {
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	if strings.HasSuffix(name, "/") { // an empty directory
		return l.put(name, directory(path.Clean(name)), nil)
	}
	return l.put(name, tar.Header{Typeflag: tar.TypeReg, Mode: 0o644}, []byte(text))
}
