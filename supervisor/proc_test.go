package supervisor

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// stat writes a row of the process table as the kernel does.
func stat(pid int, comm string, state byte, ppid, pgrp, session int, start uint64) string {
	return fmt.Sprintf("%d (%s) %c %d %d %d 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 %d 0 0 18446744073709551615", pid, comm, state, ppid, pgrp, session, start)
}

func TestParseStat(t *testing.T) {
	got, ok := parseStat([]byte(stat(42, "VLLM::Engine) S 1 (Core", 'S', 7, 40, 41, 123456)))
	if !ok || got.pid != 42 || got.comm != "VLLM::Engine) S 1 (Core" || got.state != 'S' || got.ppid != 7 || got.pgrp != 40 || got.session != 41 || got.Start != 123456 {
		t.Errorf("parseStat = %+v, %v", got, ok)
	}
	dying, ok := parseStat([]byte(strings.Replace(stat(42, "x", 'Z', 1, 2, 3, 9), " 20 0 1 0 9", " 20 0 3 0 9", 1)))
	if !ok || dying.threads != 3 || dying.zombie() {
		t.Errorf("a process that has lost its first thread of three: %+v, zombie %v; want still dying", dying, dying.zombie())
	}
	for _, bad := range []string{"", "42", "42 (x", "x (y) S 1 2 3", "42 (x) S 1 2", "42 (x) SS 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22",
		strings.Replace(stat(42, "x", 'S', 1, 2, 3, 9), " 9 0 0 ", " nine 0 0 ", 1)} {
		if p, ok := parseStat([]byte(bad)); ok {
			t.Errorf("parseStat(%q) = %+v; want nothing", bad, p)
		}
	}
}

// No row makes a process of no number, and no name that a program gives itself makes it another process.
func FuzzParseStat(f *testing.F) {
	f.Add([]byte(stat(42, "a b) c", 'S', 1, 2, 3, 4)), "x) S 1 1 1 (y")
	f.Add([]byte("1 ()"), "")
	f.Fuzz(func(t *testing.T, b []byte, comm string) {
		if p, ok := parseStat(b); ok && (p.pid <= 0 || p.pid != p.PID) {
			t.Fatalf("parseStat(%q) = %+v", b, p)
		}
		p, ok := parseStat([]byte(stat(42, comm, 'S', 7, 40, 41, 5)))
		if !ok || p.comm != comm || p.ident != (ident{42, 5}) || p.ppid != 7 || p.pgrp != 40 || p.session != 41 || p.state != 'S' {
			t.Fatalf("a process named %q = %+v, %v", comm, p, ok)
		}
	})
}

func TestOwnRowOfTheProcessTable(t *testing.T) {
	p, ok := readProc("/proc", os.Getpid())
	if !ok || p.pid != os.Getpid() || p.ppid != os.Getppid() || p.Start == 0 {
		t.Errorf("readProc of ourselves = %+v, %v", p, ok)
	}
	if id := bootID(); len(id) != 36 {
		t.Errorf("boot id %q; want a UUID", id)
	}
}

func row(pid int, state byte, ppid, pgrp, session int, start uint64) procInfo {
	return procInfo{ident: ident{pid, start}, pid: pid, ppid: ppid, pgrp: pgrp, session: session, state: state, threads: 1}
}

func TestFamily(t *testing.T) {
	const self = 10
	leader := ident{100, 1000}
	tests := []struct {
		name   string
		all    []procInfo
		known  []ident
		marked []int
		want   []int
	}{
		{"the tree", []procInfo{row(102, 'S', 101, 100, 100, 1002), row(101, 'S', 100, 100, 100, 1001), row(100, 'S', self, 100, 100, 1000), row(50, 'S', self, 10, 10, 500)}, nil, nil, []int{100, 101, 102}},
		{"orphans after the leader is gone", []procInfo{row(101, 'S', self, 100, 100, 1001), row(102, 'R', 1, 100, 100, 1002)}, nil, nil, []int{101, 102}},
		{"a grandchild in its own session, seen before", []procInfo{row(103, 'S', self, 103, 103, 1003)}, []ident{{103, 1003}}, nil, []int{103}},
		{"the same pid, another process", []procInfo{row(103, 'S', self, 103, 103, 2000)}, []ident{{103, 1003}}, nil, nil},
		{"an orphan in its own session with our mark", []procInfo{row(103, 'S', self, 103, 103, 1003)}, nil, []int{103}, []int{103}},
		{"another child of ours", []procInfo{row(200, 'S', self, 200, 200, 1500), row(201, 'S', 200, 200, 200, 1501)}, nil, nil, nil},
		{"the leader's pid was given away", []procInfo{row(100, 'S', 5, 100, 100, 9000), row(901, 'S', 100, 100, 100, 9001), row(902, 'S', 1, 100, 100, 9002)}, nil, nil, nil},
		{"a session in common but a stranger's child", []procInfo{row(300, 'S', 7, 100, 100, 3000)}, nil, nil, nil},
		{"older than the leader", []procInfo{row(101, 'S', self, 100, 100, 999)}, nil, nil, nil},
		{"a dead orphan", []procInfo{row(101, 'Z', self, 100, 100, 1001)}, nil, nil, []int{101}},
		{"never ourselves", []procInfo{row(self, 'S', 1, 100, 100, 1001)}, nil, nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			known := map[ident]bool{}
			for _, k := range tt.known {
				known[k] = true
			}
			f := family{leader: leader, self: self, known: known, marked: func(pid int) bool { return slices.Contains(tt.marked, pid) }}
			var got []int
			for _, p := range f.members(tt.all) {
				got = append(got, p.pid)
			}
			slices.Sort(got)
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("members differ (-want +got):\n%s", d)
			}
		})
	}
}

func TestScanOfABrokenTable(t *testing.T) {
	root := t.TempDir()
	for pid, content := range map[string]string{"5": stat(5, "good", 'S', 1, 5, 5, 9), "6": "nonsense", "7": "", "self": stat(1, "x", 'S', 1, 1, 1, 1)} {
		if err := os.Mkdir(filepath.Join(root, pid), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, pid, "stat"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := scanProcs(root)
	if err != nil || len(got) != 1 || got[0].pid != 5 {
		t.Errorf("scanProcs = %+v, %v; want the one good row", got, err)
	}
	if _, err := scanProcs(filepath.Join(root, "nowhere")); err == nil {
		t.Error("a table that is not there was read without an error")
	}
}

func TestF36_BusyPortNamesItsHolder(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	_, err = freePort(port)
	if err == nil {
		t.Fatal("a port that is in use was called free")
	}
	for _, want := range []string{fmt.Sprint("port ", port), fmt.Sprint("pid ", os.Getpid())} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not contain %q", err, want)
		}
	}
	l.Close()
	if got, err := freePort(port); err != nil || got != port {
		t.Errorf("freePort(%d) after it was closed = %d, %v", port, got, err)
	}
}

func TestListening(t *testing.T) {
	const listener = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 77777 1 0000000000000000 100 0 0 10 0"
	tests := []struct {
		row   string
		port  int
		inode string
	}{
		{listener, 8080, "77777"},
		{listener, 8081, ""},
		{strings.Replace(listener, " 0A ", " 01 ", 1), 8080, ""},
		{"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode", 8080, ""},
		{"", 8080, ""},
	}
	for _, tt := range tests {
		if inode, ok := listening(tt.row, tt.port); inode != tt.inode || ok != (tt.inode != "") {
			t.Errorf("listening(%.30q, %d) = %q, %v; want %q", tt.row, tt.port, inode, ok, tt.inode)
		}
	}
}
