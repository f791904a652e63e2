// Prints what kstatus (the library that Helm 4 and Flux wait with) makes of Kubernetes objects.
//
// Standard input: one JSON object after the other, or arrays or Lists of them.
// Standard output, for each: STATUS<TAB>message.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	integers "k8s.io/apimachinery/pkg/util/json"
)

func main() {
	if err := report(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "kstatus:", err)
		os.Exit(1)
	}
}

func report(in io.Reader, out io.Writer) error {
	decoder := json.NewDecoder(in)
	for {
		var raw json.RawMessage
		if err := decoder.Decode(&raw); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		// Whole numbers have to be int64, as in an object that a client has read: kstatus refuses a float64 generation.
		var value any
		if err := integers.Unmarshal(raw, &value); err != nil {
			return err
		}
		if err := reportValue(value, out); err != nil {
			return err
		}
	}
}

func reportValue(value any, out io.Writer) error {
	switch typed := value.(type) {
	case []any:
		for _, item := range typed {
			if err := reportValue(item, out); err != nil {
				return err
			}
		}
		return nil
	case map[string]any:
		if items, isList := typed["items"].([]any); isList && typed["spec"] == nil {
			return reportValue(items, out)
		}
		result, err := status.Compute(&unstructured.Unstructured{Object: typed})
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(out, "%s\t%s\n", result.Status, strings.Join(strings.Fields(result.Message), " "))
		return err
	default:
		return fmt.Errorf("%v is not a Kubernetes object", value)
	}
}
