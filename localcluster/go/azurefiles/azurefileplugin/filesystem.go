package main

import (
	"context"
	"errors"
	"os"
	"path"
	"sync"
	"syscall"
	"time"

	"github.com/cloudsoda/go-smb2"
	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

const (
	lasting         = syscall.O_ACCMODE // what is left of the flags when a file is opened again
	closingAttempts = 5
	closingPause    = 20 * time.Millisecond
)

// volume is one directory of a share with the owner and the modes that the mount options give to everything in it.
type volume struct {
	remote  *remote
	folder  string // below the share
	options options
}

// node is a file or a directory. SMB's own semantics show: neither links nor modes of single files, and what another
// client has open can neither be removed nor replaced.
type node struct {
	fs.Inode
	volume *volume

	lock sync.Mutex
	open map[*handle]struct{}
}

func (n *node) path() string { return path.Join(n.volume.folder, n.Path(n.Root())) }

func (n *node) do(operation func(*smb2.Share) error) syscall.Errno {
	return errno(n.volume.remote.do(operation))
}

// doWhenClosed waits a moment for the end of what programs have closed: the kernel does not wait for that.
func (n *node) doWhenClosed(operation func(*smb2.Share) error) (failed syscall.Errno) {
	for range closingAttempts {
		if failed = n.do(operation); failed != syscall.EBUSY && failed != syscall.EACCES {
			return failed
		}
		time.Sleep(closingPause)
	}
	return failed
}

// inode is the node for a name, which keeps its number as long as it is known.
func (n *node) inode(ctx context.Context, name string, mode uint32) *fs.Inode {
	if known := n.GetChild(name); known != nil && known.StableAttr().Mode == mode {
		return known
	}
	return n.NewInode(ctx, &node{volume: n.volume, open: map[*handle]struct{}{}}, fs.StableAttr{Mode: mode})
}

func (v *volume) attributes(info os.FileInfo, out *fuse.Attr) {
	out.Owner = fuse.Owner{Uid: v.options.UID, Gid: v.options.GID}
	out.Size, out.Blocks, out.Blksize = uint64(info.Size()), (uint64(info.Size())+511)/512, 1<<20
	if out.Mode, out.Nlink = kind(info)|v.options.FileMode, 1; info.IsDir() {
		out.Mode, out.Nlink = kind(info)|v.options.DirMode, 2
	}
	if stat, ok := info.Sys().(*smb2.FileStat); ok {
		out.SetTimes(&stat.LastAccessTime, &stat.LastWriteTime, &stat.ChangeTime)
	}
}

func kind(info os.FileInfo) uint32 {
	if info.IsDir() {
		return fuse.S_IFDIR
	}
	return fuse.S_IFREG
}

func (n *node) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	return n.do(func(share *smb2.Share) error {
		info, err := share.Stat(n.path())
		if err == nil {
			n.volume.attributes(info, &out.Attr)
		}
		return err
	})
}

// Setattr changes sizes and times. Owners and modes are those of the mount: a change is accepted and has no effect.
func (n *node) Setattr(ctx context.Context, _ fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	failed := n.do(func(share *smb2.Share) error {
		if size, ok := in.GetSize(); ok {
			if err := share.Truncate(n.path(), int64(size)); err != nil {
				return err
			}
		}
		accessed, setsAccess := in.GetATime()
		written, setsWrite := in.GetMTime()
		if !setsAccess && !setsWrite {
			return nil
		}
		info, err := share.Stat(n.path())
		if err != nil {
			return err
		}
		if !setsWrite {
			written = info.ModTime()
		}
		if stat, ok := info.Sys().(*smb2.FileStat); ok && !setsAccess {
			accessed = stat.LastAccessTime
		}
		return share.Chtimes(n.path(), accessed, written)
	})
	if failed != 0 {
		return failed
	}
	return n.Getattr(ctx, nil, out)
}

func (n *node) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	var child *fs.Inode
	failed := n.do(func(share *smb2.Share) error {
		info, err := share.Stat(path.Join(n.path(), name))
		if err == nil {
			n.volume.attributes(info, &out.Attr)
			child = n.inode(ctx, name, kind(info))
		}
		return err
	})
	return child, failed
}

func (n *node) Readdir(context.Context) (fs.DirStream, syscall.Errno) {
	var entries []fuse.DirEntry
	failed := n.do(func(share *smb2.Share) error {
		found, err := share.ReadDir(n.path())
		entries = []fuse.DirEntry{{Name: ".", Mode: fuse.S_IFDIR}, {Name: "..", Mode: fuse.S_IFDIR}}
		for _, info := range found {
			entries = append(entries, fuse.DirEntry{Name: info.Name(), Mode: kind(info)})
		}
		return err
	})
	return fs.NewListDirStream(entries), failed
}

func (n *node) Mkdir(ctx context.Context, name string, _ uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	failed := n.do(func(share *smb2.Share) error { return share.Mkdir(path.Join(n.path(), name), 0o777) })
	if failed != 0 {
		return nil, failed
	}
	return n.Lookup(ctx, name, out)
}

func (n *node) Unlink(_ context.Context, name string) syscall.Errno { return n.remove(name) }

func (n *node) Rmdir(_ context.Context, name string) syscall.Errno { return n.remove(name) }

func (n *node) remove(name string) syscall.Errno {
	n.closeChild(name)
	return n.doWhenClosed(func(share *smb2.Share) error { return share.Remove(path.Join(n.path(), name)) })
}

func (n *node) Rename(
	_ context.Context, name string, parent fs.InodeEmbedder, newName string, flags uint32,
) syscall.Errno {
	from, to := path.Join(n.path(), name), path.Join(parent.(*node).path(), newName)
	const noReplace = 1
	if flags&^noReplace != 0 {
		return syscall.EINVAL
	}
	n.closeChild(name)
	return n.doWhenClosed(func(share *smb2.Share) error {
		// Azure replaces no file that anybody has open; smbd looks at this connection alone, but for a file to be
		// renamed it looks at all.
		if err := share.Rename(to, to); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		} else if err == nil && flags == noReplace {
			return os.ErrExist
		}
		return share.Rename(from, to)
	})
}

// closeChild lets go of a file that this mount has open: its handles open it again, under its name of then.
func (n *node) closeChild(name string) {
	child := n.GetChild(name)
	if child == nil {
		return
	}
	one := child.Operations().(*node)
	one.lock.Lock()
	defer one.lock.Unlock()
	for opened := range one.open {
		opened.close()
	}
}

func (n *node) Statfs(_ context.Context, out *fuse.StatfsOut) syscall.Errno {
	return n.do(func(share *smb2.Share) error {
		info, err := share.Statfs(n.volume.folder)
		if err != nil {
			return err
		}
		out.Bsize, out.Frsize = uint32(info.BlockSize()), uint32(info.FragmentSize())
		out.Blocks, out.Bfree, out.Bavail = info.TotalBlockCount(), info.FreeBlockCount(), info.AvailableBlockCount()
		out.NameLen = 255
		return nil
	})
}

func (n *node) Open(_ context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	opened := n.handle(flags)
	failed := opened.do(func(*smb2.Share, *smb2.File) error { return nil })
	return opened.or(failed), fuse.FOPEN_DIRECT_IO, failed
}

func (n *node) Create(
	ctx context.Context, name string, flags uint32, _ uint32, out *fuse.EntryOut,
) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	child := n.inode(ctx, name, fuse.S_IFREG)
	opened := child.Operations().(*node).handle(flags | syscall.O_CREAT)
	where := path.Join(n.path(), name)
	failed := n.do(func(share *smb2.Share) error {
		if err := opened.openAt(share, where); err != nil {
			return err
		}
		info, err := share.Stat(where)
		if err == nil {
			n.volume.attributes(info, &out.Attr)
		}
		return err
	})
	return child, opened.or(failed), fuse.FOPEN_DIRECT_IO, failed
}

func (n *node) handle(flags uint32) *handle {
	made := &handle{node: n, appends: flags&syscall.O_APPEND != 0}
	made.flags = int(flags) & (lasting | syscall.O_CREAT | syscall.O_EXCL | syscall.O_TRUNC)
	n.lock.Lock()
	defer n.lock.Unlock()
	n.open[made] = struct{}{}
	return made
}

// handle is an open file. It opens the file on the server again where the connection was lost.
type handle struct {
	node    *node
	appends bool

	lock  sync.Mutex
	flags int
	share *smb2.Share
	file  *smb2.File
}

// or is the handle, or none where it could not be opened.
func (h *handle) or(failed syscall.Errno) fs.FileHandle {
	if failed == 0 {
		return h
	}
	h.forget()
	return nil
}

func (h *handle) do(operation func(*smb2.Share, *smb2.File) error) syscall.Errno {
	return h.node.do(func(share *smb2.Share) error {
		h.lock.Lock()
		defer h.lock.Unlock()
		if h.file == nil || h.share != share {
			if err := h.open(share, h.node.path()); err != nil {
				return err
			}
		}
		return operation(share, h.file)
	})
}

func (h *handle) openAt(share *smb2.Share, where string) error {
	h.lock.Lock()
	defer h.lock.Unlock()
	return h.open(share, where)
}

func (h *handle) open(share *smb2.Share, where string) error {
	file, err := share.OpenFile(where, h.flags, 0o666)
	if err == nil {
		h.share, h.file, h.flags = share, file, h.flags&lasting
	}
	return err
}

func (h *handle) close() error {
	h.lock.Lock()
	defer h.lock.Unlock()
	if h.file == nil {
		return nil
	}
	err := h.file.Close()
	h.file = nil
	return err
}

func (h *handle) forget() {
	h.node.lock.Lock()
	defer h.node.lock.Unlock()
	delete(h.node.open, h)
}

func (h *handle) Read(_ context.Context, target []byte, offset int64) (fuse.ReadResult, syscall.Errno) {
	length := 0
	failed := h.do(func(_ *smb2.Share, file *smb2.File) (err error) {
		if length, err = file.ReadAt(target, offset); isEnd(err) {
			return nil
		}
		return err
	})
	return fuse.ReadResultData(target[:length]), failed
}

// Write appends at the end that the file has on the server: this client may not know yet what others have written.
func (h *handle) Write(_ context.Context, data []byte, offset int64) (uint32, syscall.Errno) {
	failed := h.do(func(share *smb2.Share, file *smb2.File) error {
		if h.appends {
			info, err := share.Stat(h.node.path())
			if err != nil {
				return err
			}
			offset = info.Size()
		}
		_, err := file.WriteAt(data, offset)
		return err
	})
	if failed != 0 {
		return 0, failed
	}
	return uint32(len(data)), 0
}

func (h *handle) Release(context.Context) syscall.Errno {
	h.close()
	h.forget()
	return 0
}

func (h *handle) Fsync(context.Context, uint32) syscall.Errno {
	return h.do(func(_ *smb2.Share, file *smb2.File) error { return file.Sync() })
}

func seconds(number float64) *time.Duration {
	duration := time.Duration(number * float64(time.Second))
	return &duration
}
