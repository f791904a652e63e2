package main

import (
	"fmt"
	"strconv"
	"strings"
)

// options are those of mount.cifs that have an effect here.
type options struct {
	UID, GID          uint32
	FileMode, DirMode uint32
	ReadOnly          bool
	// How long sizes, times and names are taken for true without asking the server, in seconds.
	FileSeconds, DirSeconds float64
}

// What mount.cifs takes and nothing here depends on.
var withoutEffect = map[string]bool{
	"cache": true, "closetimeo": true, "echo_interval": true, "exec": true, "forcegid": true, "forceuid": true,
	"handletimeout": true, "hard": true, "iocharset": true, "max_channels": true, "mfsymlinks": true,
	"multichannel": true, "noatime": true, "nobrl": true, "nodev": true, "noexec": true, "noperm": true,
	"noserverino": true, "nosharesock": true, "nostrictsync": true, "nosuid": true, "rsize": true, "rw": true,
	"seal": true, "serverino": true, "sloppy": true, "soft": true, "strictsync": true, "vers": true, "wsize": true,
}

// parseOptions reads what `mount -t cifs -o` would be given, the driver's own defaults included.
func parseOptions(list []string) (options, error) {
	parsed := options{FileMode: 0o777, DirMode: 0o777, FileSeconds: 30, DirSeconds: 30}
	for _, item := range list {
		name, value, _ := strings.Cut(strings.TrimSpace(item), "=")
		var err error
		switch name {
		case "uid":
			parsed.UID, err = number(value, 10)
		case "gid":
			parsed.GID, err = number(value, 10)
		case "file_mode":
			parsed.FileMode, err = number(value, 8)
		case "dir_mode":
			parsed.DirMode, err = number(value, 8)
		case "actimeo":
			parsed.FileSeconds, err = strconv.ParseFloat(value, 64)
			parsed.DirSeconds = parsed.FileSeconds
		case "acregmax":
			parsed.FileSeconds, err = strconv.ParseFloat(value, 64)
		case "acdirmax":
			parsed.DirSeconds, err = strconv.ParseFloat(value, 64)
		case "ro":
			parsed.ReadOnly = true
		default:
			if name != "" && !withoutEffect[name] {
				err = fmt.Errorf("unknown")
			}
		}
		if err != nil {
			return parsed, fmt.Errorf("mount option %q: %w", item, err)
		}
	}
	parsed.FileMode &= 0o777
	parsed.DirMode &= 0o777
	return parsed, nil
}

func number(text string, base int) (uint32, error) {
	value, err := strconv.ParseUint(text, base, 32)
	return uint32(value), err
}
