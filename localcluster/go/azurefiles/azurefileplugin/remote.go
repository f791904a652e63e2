package main

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/cloudsoda/go-smb2"
)

const (
	connectSeconds = 5 * time.Second
	// A server that acknowledges packets and answers nothing is given up after both of these.
	echoInterval = 5 * time.Second
	echoSeconds  = 10 * time.Second
	// So long everybody gets the error of the last attempt to connect, instead of waiting for one after the other.
	retryPause = time.Second
)

// remote is the share of one account; it connects again by itself when the connection was lost.
type remote struct {
	Address string `json:"address"`
	Share   string `json:"share"`
	User    string `json:"user"`
	Key     string `json:"key"`

	lock    sync.Mutex
	share   *smb2.Share
	close   func() error
	failure error
	failed  time.Time
}

// do lets the operation use the share, and once more on a new connection where it lost the first.
func (r *remote) do(operation func(*smb2.Share) error) error {
	err := r.attempt(operation)
	if isLost(err) {
		err = r.attempt(operation)
	}
	return err
}

func (r *remote) attempt(operation func(*smb2.Share) error) error {
	share, err := r.connected()
	if err != nil {
		return err
	}
	if err = operation(share); isLost(err) {
		r.drop(share)
	}
	return err
}

func (r *remote) connected() (*smb2.Share, error) {
	r.lock.Lock()
	defer r.lock.Unlock()
	if r.share != nil {
		return r.share, nil
	}
	if time.Since(r.failed) < retryPause {
		return nil, r.failure
	}
	if err := r.connect(); err != nil {
		r.failure, r.failed = err, time.Now()
		return nil, err
	}
	return r.share, nil
}

func (r *remote) connect() error {
	limited, cancel := context.WithTimeout(context.Background(), connectSeconds)
	defer cancel()
	connection, err := (&net.Dialer{}).DialContext(limited, "tcp", net.JoinHostPort(r.Address, "445"))
	if err != nil {
		return &unreachable{err}
	}
	dialer := smb2.Dialer{Initiator: &smb2.NTLMInitiator{User: r.User, Password: r.Key}}
	session, err := dialer.DialConn(limited, connection, r.Address)
	if err == nil {
		// The names that Windows forbids are mapped as cifs maps them.
		r.share, err = session.WithContext(limited).Mount(r.Share, smb2.WithMapPosix())
	}
	if err != nil {
		connection.Close()
		if limited.Err() != nil {
			return &unreachable{err}
		}
		return err
	}
	r.share = r.share.WithContext(context.Background())
	r.close = connection.Close
	go r.watch(session, r.share)
	return nil
}

// watch gives the connection up when the server is silent.
func (r *remote) watch(session *smb2.Session, share *smb2.Share) {
	for {
		time.Sleep(echoInterval)
		limited, cancel := context.WithTimeout(context.Background(), echoSeconds)
		err := session.WithContext(limited).Echo()
		cancel()
		if err != nil {
			r.drop(share)
			return
		}
	}
}

func (r *remote) drop(share *smb2.Share) {
	r.lock.Lock()
	defer r.lock.Unlock()
	if r.share == share {
		r.close()
		r.share = nil
	}
}

// unreachable is why no connection came about.
type unreachable struct{ error }

func (u *unreachable) Unwrap() error { return u.error }

// NTSTATUS codes, as [MS-ERREF] numbers them.
var statuses = map[uint32]syscall.Errno{
	0xC0000022: syscall.EACCES,    // ACCESS_DENIED
	0xC0000033: syscall.EINVAL,    // OBJECT_NAME_INVALID
	0xC000003A: syscall.ENOENT,    // OBJECT_PATH_NOT_FOUND
	0xC0000043: syscall.EBUSY,     // SHARING_VIOLATION
	0xC0000056: syscall.EBUSY,     // DELETE_PENDING
	0xC000006D: syscall.EACCES,    // LOGON_FAILURE
	0xC000007F: syscall.ENOSPC,    // DISK_FULL
	0xC00000BA: syscall.EISDIR,    // FILE_IS_A_DIRECTORY
	0xC00000CC: syscall.ENOENT,    // BAD_NETWORK_NAME
	0xC0000101: syscall.ENOTEMPTY, // DIRECTORY_NOT_EMPTY
	0xC0000103: syscall.ENOTDIR,   // NOT_A_DIRECTORY
}

// Answers after which a new session helps.
var lostStatuses = map[uint32]bool{
	0xC00000C9: true, // NETWORK_NAME_DELETED
	0xC0000128: true, // FILE_CLOSED
	0xC0000203: true, // USER_SESSION_DELETED
	0xC000035C: true, // NETWORK_SESSION_EXPIRED
}

func isLost(err error) bool {
	var response *smb2.ResponseError
	if errors.As(err, &response) {
		return lostStatuses[response.Code]
	}
	var transport *smb2.TransportError
	return errors.As(err, &transport) || errors.Is(err, net.ErrClosed)
}

// errno is what a program sees of an error.
func errno(err error) syscall.Errno {
	var response *smb2.ResponseError
	var away *unreachable
	switch {
	case err == nil:
		return 0
	case errors.As(err, &away):
		return syscall.EHOSTDOWN // as cifs answers
	case errors.Is(err, os.ErrNotExist):
		return syscall.ENOENT
	case errors.Is(err, os.ErrExist):
		return syscall.EEXIST
	case errors.Is(err, os.ErrPermission):
		return syscall.EACCES
	case errors.As(err, &response) && statuses[response.Code] != 0:
		return statuses[response.Code]
	}
	return syscall.EIO
}

// isEnd tells the end of a file from an error.
func isEnd(err error) bool {
	var response *smb2.ResponseError
	return errors.Is(err, io.EOF) || errors.As(err, &response) && response.Code == 0xC0000011 // END_OF_FILE
}
