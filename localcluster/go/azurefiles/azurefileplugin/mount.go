package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/cloudsoda/go-smb2"
	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

const mountSeconds = 30 * time.Second

// request is all that a mounting process is given, on its standard input: a key is on no command line.
type request struct {
	Remote  remote  `json:"remote"`
	Source  string  `json:"source"` // //<account>.file.core.windows.net/<share>, as `df` shows it
	Target  string  `json:"target"`
	Folders string  `json:"folders"` // the share's directory and the folder in it
	Create  bool    `json:"create"`  // the folder, where it does not exist
	Options options `json:"options"`
}

// startMount leaves a process behind that serves the mount, whatever becomes of this one; or the words of mount.cifs.
func startMount(wanted *request) error {
	input, err := json.Marshal(wanted)
	if err != nil {
		return err
	}
	command := exec.Command("/proc/self/exe", "mount", wanted.Target)
	command.Args[0] = os.Args[0]
	command.Env = append(os.Environ(), "HOROVODJOB_COMPONENT=azure-files-mount") // it outlives a stopped driver
	command.Stdin, command.Stderr = strings.NewReader(string(input)), os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	output, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return err
	}
	timer := time.AfterFunc(mountSeconds, func() { command.Process.Kill() })
	line, err := bufio.NewReader(output).ReadString('\n')
	ended := !timer.Stop()
	go command.Wait() // nobody else reaps it
	switch {
	case line == "mounted\n":
		return nil
	case line != "":
		return errors.New(strings.TrimSuffix(line, "\n"))
	case ended:
		return mountError(syscall.EINPROGRESS)
	}
	return fmt.Errorf("the mounting process ended without a word: %w", err)
}

// serveMount mounts what standard input asks for, prints that, and serves it until somebody unmounts it.
func serveMount() error {
	var wanted request
	if err := json.NewDecoder(os.Stdin).Decode(&wanted); err != nil {
		return err
	}
	server, err := mount(&wanted)
	if err != nil {
		fmt.Println(err)
		return err
	}
	fmt.Println("mounted")
	server.Wait()
	return nil
}

func mount(wanted *request) (*fuse.Server, error) {
	if err := wanted.Remote.do(wanted.prepare); err != nil {
		return nil, mountFailure(err, wanted.Remote.Address)
	}
	root := &node{volume: &volume{&wanted.Remote, wanted.Folders, wanted.Options}, open: map[*handle]struct{}{}}
	settings := &fs.Options{
		EntryTimeout:    seconds(wanted.Options.DirSeconds),
		NegativeTimeout: seconds(wanted.Options.DirSeconds),
		AttrTimeout:     seconds(wanted.Options.FileSeconds),
		MountOptions: fuse.MountOptions{
			AllowOther:         true,
			DirectMountStrict:  true,
			DisableReadDirPlus: true,
			DisableXAttrs:      true,
			ExtraCapabilities:  fuse.CAP_DIRECT_IO_ALLOW_MMAP,
			FsName:             wanted.Source,
			MaxWrite:           1 << 19,
			Name:               "cifs",
			Options:            []string{"default_permissions"}, // the kernel enforces owner and modes
		},
	}
	if wanted.Options.ReadOnly {
		settings.DirectMountFlags = syscall.MS_NOSUID | syscall.MS_NODEV | syscall.MS_RDONLY
	}
	return fs.Mount(wanted.Target, root, settings)
}

// prepare insists on the directory to be mounted.
func (wanted *request) prepare(share *smb2.Share) error {
	top, _, _ := strings.Cut(wanted.Folders, "/")
	if _, err := share.Stat(top); err != nil {
		return err
	}
	if wanted.Create {
		if err := share.MkdirAll(wanted.Folders, 0o777); err != nil {
			return err
		}
	}
	info, err := share.Stat(path.Clean(wanted.Folders))
	if err == nil && !info.IsDir() {
		return os.ErrNotExist
	}
	return err
}

// mountFailure is the error in the words of mount.cifs.
func mountFailure(err error, address string) error {
	var away *unreachable
	var timeout net.Error
	switch {
	case errors.As(err, &away) && errors.As(err, &timeout) && timeout.Timeout():
		return mountError(syscall.EINPROGRESS)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("mount error(111): could not connect to %sUnable to find suitable address.", address)
	case errors.As(err, &away):
		return mountError(syscall.EHOSTDOWN)
	}
	return mountError(errno(err))
}

func mountError(number syscall.Errno) error {
	words := number.Error()
	return fmt.Errorf("mount error(%d): %s", int(number), strings.ToUpper(words[:1])+words[1:])
}
