// Interop cases for the Go client: run them, all at once, against the name server given as first
// argument or in NAMESRV_ADDR. Further arguments choose cases by name.
package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type interopCase struct {
	name string
	run  func(*fixture)
}

func main() {
	namesrv, wanted := arguments()
	rlog.SetLogLevel("error")
	cases := slices.Concat(sendCases, pushCases, pullCases, retryCases, groupCases, bodyCases, sqlCases, transactionCases)
	if len(wanted) > 0 {
		cases = slices.DeleteFunc(cases, func(c interopCase) bool { return !slices.Contains(wanted, c.name) })
	}
	if !runAll(cases, namesrv) {
		os.Exit(1)
	}
}

func arguments() (namesrv string, cases []string) {
	if len(os.Args) > 1 {
		return os.Args[1], os.Args[2:]
	}
	if address := os.Getenv("NAMESRV_ADDR"); address != "" {
		return address, nil
	}
	fmt.Fprintln(os.Stderr, "usage: interop NAMESRV [CASE...]")
	os.Exit(2)
	return "", nil
}

// runAll prints the names of the cases first, then one line for each when it ends.
func runAll(cases []interopCase, namesrv string) bool {
	names := make([]string, len(cases))
	for index, c := range cases {
		names[index] = c.name
	}
	fmt.Println("CASES", strings.Join(names, " "))

	results := make(chan bool, len(cases))
	var running sync.WaitGroup
	for _, c := range cases {
		running.Go(func() { results <- runOne(c, namesrv) })
	}
	running.Wait()
	close(results)
	passed := true
	for result := range results {
		passed = passed && result
	}
	return passed
}

func runOne(c interopCase, namesrv string) (passed bool) {
	f := newFixture(namesrv, c.name)
	defer f.close()
	defer func() {
		if reason := recover(); reason != nil {
			fmt.Printf("FAIL %s: %s\n", c.name, oneLine(reason))
			passed = false
		}
	}()
	c.run(f)
	fmt.Println("PASS", c.name)
	return true
}

func oneLine(reason any) string {
	const longest = 500
	line := []rune(strings.Join(strings.Fields(fmt.Sprint(reason)), " "))
	if len(line) > longest {
		return string(line[:longest]) + "…"
	}
	return string(line)
}
