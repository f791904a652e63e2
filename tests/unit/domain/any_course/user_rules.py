"""What a user does to a job in any random course of events."""

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from unit.domain.fake_cluster import FakeCluster


class UserRules(RuleBasedStateMachine):
    """Rules of a state machine whose `cluster` has the job."""

    cluster: FakeCluster

    @rule(suspend=st.booleans())
    def the_user_suspends_or_resumes(self, suspend: bool) -> None:
        self.cluster.edit_run_policy(suspend=suspend)

    @rule(image=st.sampled_from(["trainer", "trainer:2"]))
    def the_user_changes_the_job_while_the_operator_is_down(self, image: str) -> None:
        suspend = self.cluster.job.spec.run_policy.suspend
        self.cluster.edit_run_policy(suspend=True)
        self.cluster.edit_spec(image=image)
        self.cluster.edit_run_policy(suspend=suspend)
