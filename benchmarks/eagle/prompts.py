"""The prompts that SmolLM2 answers: groups of one kind, and topics that are kept for the end."""

from __future__ import annotations

from collections.abc import Mapping

GROUPS: Mapping[str, str] = {
    "explain": "Explain in simple words what {} is and why it matters.",
    "story": "Write a short story about a child and {}.",
    "list": "List five facts about {}.",
    "advice": "Give me advice on how to start learning about {}.",
}
_TOPICS = (
    "the moon,a river,bread,a violin,gravity,a lighthouse,coffee,the ocean,a bicycle,rain,"
    "a garden,chess,electricity,a train,honey,the desert,photography,a clock,mountains,dogs,"
    "the brain,paper,a bridge,volcanoes,swimming,the sun,a market,snow,painting,a camera,"
    "money,a forest,the heart,glass,birds,a telescope,salt,dancing,a castle,computers,"
    "a museum,wind,sleep,a ship,mathematics,apples,an island,friendship,robots,a library"
)
_KEPT = "a whale,tea,earthquakes,a piano,cooking,stars"


def training_prompts() -> list[str]:
    """Every group about every topic."""
    return [form.format(topic) for topic in _TOPICS.split(",") for form in GROUPS.values()]


def kept_prompts() -> dict[str, list[str]]:
    """By group, prompts about topics that no training prompt has."""
    return {
        group: [form.format(topic) for topic in _KEPT.split(",")] for group, form in GROUPS.items()
    }
