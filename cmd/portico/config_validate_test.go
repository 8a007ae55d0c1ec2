package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"portico/cmd/e2e"
	"portico/cmd/portico/server"
	"portico/cmd/portico/up"
)

// ofThisMachine are refusals of wrongInput that a file does not cause: what is bound and written when a process starts.
var ofThisMachine = []string{"--data-dir=/proc/portico", "--data-dir=policy.yaml/data", "/proc/x/y", "--listen=127.0.0.1:99999", "--listen=192.0.2.1:6443", "--listen=systemd:x"}

// What a process refuses of its flags and of the files that they name, portico config validate refuses of a file with
// these flags, in the same line; a file that does not exist on this machine is no reason.
func TestValidateRefusesWhatProcessesRefuse(t *testing.T) {
	inFolderOfWrongInput(t)
	compared := 0
	for line := range wrongInput {
		name, text, _ := strings.Cut(line, " ")
		process := map[string]func() *cobra.Command{"up": up.New, "gateway": server.NewGateway, "core": server.NewCore, "crd": server.NewCRD}[name]
		if process == nil || slices.ContainsFunc(ofThisMachine, func(of string) bool { return strings.Contains(line, of) }) {
			continue
		}
		section, ok := asSection(process().Flags(), strings.Fields(text))
		if !ok {
			continue
		}
		compared++
		t.Run(line, func(t *testing.T) {
			e2e.WriteFile(t, "portico.yaml", head+name+": {"+section+"}\n")
			_, want := command(t, name, "--config=portico.yaml")
			_, got := command(t, "config", "validate", "portico.yaml", name)
			switch {
			case want == nil:
				t.Errorf("the process refuses nothing of %s", section)
			case strings.Contains(want.Error(), syscall.ENOENT.Error()): // validate goes on to the next refusal
			case got == nil || got.Error() != want.Error():
				t.Errorf("%s: validate says\n%v\nthe process\n%v", section, got, want)
			}
		})
	}
	if compared < 80 {
		t.Errorf("only %d lines are compared", compared)
	}
}

// asSection returns flags as the section of a file; false for what no file has.
func asSection(known *pflag.FlagSet, args []string) (string, bool) {
	values := map[string][]string{}
	for _, arg := range args {
		flag, value, has := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		f := known.Lookup(flag)
		if f == nil || !strings.HasPrefix(arg, "--") {
			return "", false
		}
		if !has {
			value = f.NoOptDefVal
		}
		if slices.Contains([]string{"string", "stringSlice", "stringArray", "duration", "gates"}, f.Value.Type()) {
			value = "'" + value + "'"
		}
		values[flag] = append(values[flag], value)
	}
	var fields []string
	for flag, list := range values {
		value := strings.Join(list, ", ")
		if _, several := known.Lookup(flag).Value.(pflag.SliceValue); several {
			value = "[" + value + "]"
		}
		fields = append(fields, fmt.Sprintf("%s: %s", flag, value))
	}
	return strings.Join(fields, ", "), true
}

// Sections of processes are checked as portico up checks them before it makes a file or starts a process, unless the file
// is one of processes that run alone.
func TestValidateSections(t *testing.T) {
	inFolderOfWrongInput(t)
	const alone = "all: {etcd-servers: ['https://e:1']}\n"
	for _, tc := range []struct{ sections, want string }{
		{"gateway: {audit-log-path: audit.log}", "gateway.audit-log-path: --audit-log-path without --audit-policy-file: nothing would be audited"},
		{"gateway: {audit-log-path: audit.log, audit-policy-file: bad-policy.yaml}", "load audit policy bad-policy.yaml"},
		{"gateway: {audit-log-path: /proc/x/y, audit-policy-file: policy.yaml}", ""},
		{"gateway: {audit-log-path: audit.log, audit-policy-file: not-here.yaml}", ""},
		{"core: {controllers: [nonsense]}", "core.controllers: --controllers: "},
		{"crd: {audit-policy-file: policy.yaml}", "crd.audit-policy-file: --audit-policy-file without --audit-log-path"},
		{"core: {vmodule: upstream}", `core.vmodule: --vmodule: "upstream" must have the form PACKAGE=LEVEL`},
		{"etcd: {quota-backend-bytes: 1}", "etcd.quota-backend-bytes: --quota-backend-bytes 1: must be at least"},
		{"up: {listen: ['127.0.0.1:0', 'unix:///x']}", ""},
		{"up: {listen: [nonsense]}", `up.listen: listen on "nonsense": must have the form host:port; choose another address with --listen`},
		{"up: {kubelet-client-key: x}", "up.kubelet-client-key: --kubelet-client-key without --kubelet-client-certificate"},
		{alone + "gateway: {listen: '0.0.0.0:1', backend: ['core=https://c:1']}\ncore: {gateway: 'https://g:1'}", ""},
		{alone + "gateway: {listen: '0.0.0.0:1', audit-log-path: x}", "gateway.audit-log-path: --audit-log-path without --audit-policy-file"},
		{alone + "core: {gateway: 'http://g:1'}", `gateway URL "http://g:1" must be https://host:port`},
	} {
		e2e.WriteFile(t, "portico.yaml", head+tc.sections+"\n")
		_, got := command(t, "config", "validate", "portico.yaml")
		if tc.want == "" && got != nil || tc.want != "" && (got == nil || !strings.Contains(got.Error(), tc.want)) {
			t.Errorf("%s: %v, want %q", tc.sections, got, tc.want)
		}
		if strings.HasPrefix(tc.sections, alone) || tc.want == "" {
			continue
		}
		if _, err := command(t, "up", "--config=portico.yaml", "--data-dir=made"); err == nil || got == nil || err.Error() != got.Error() {
			t.Errorf("%s: portico up says %v, validate %v", tc.sections, err, got)
		}
		if _, err := os.Stat("made"); err == nil {
			t.Fatalf("%s: portico up made a data folder", tc.sections)
		}
	}
	e2e.WriteFile(t, "portico.yaml", head+"core: {audit-log-path: '-'}\n")
	if _, err := command(t, "config", "validate", "portico.yaml", "core", "--", "--etcd-servers=unix:///e", "--listen=unix:///c", "--audit-policy-file=policy.yaml"); err != nil {
		t.Errorf("with the flags of a command line: %v", err)
	}
}
