"""Questions in languages that write endings, prefixes or whole words without a space.

A notice board of a club, the same in each language, and five questions with other forms of its
words. Pools and questions were written before any code was tried on them.
"""

from __future__ import annotations

import pytest

from turngraph.data.retrieval.bm25 import EvidenceIndex, Ranker
from turngraph.data.types import Evidence

LIBRARY, FEE, BOAT, CHESS, DOGS, KITCHEN = range(6)
BOARDS: dict[str, tuple[str, dict[int, str]]] = {
    "Korean": (
        """동호회의 도서관은 화요일 열 시부터 네 시까지 문을 엽니다.
        연회비는 삼십 유로이고 학생은 절반만 냅니다.
        회계 담당자가 2009년에 보트를 샀습니다.
        체스 대회에서 안나가 우승했습니다.
        정원에는 개를 데려올 수 없습니다.
        자원봉사자들이 토요일마다 부엌을 청소합니다.""",
        {
            LIBRARY: "도서관이 언제 열려요?",
            FEE: "학생들은 얼마를 내나요?",
            CHESS: "체스 대회의 우승자는 누구인가요?",
            DOGS: "개와 함께 정원에 들어가도 되나요?",
            BOAT: "보트는 누가 샀나요?",
        },
    ),
    "Turkish": (
        """Kulübün kütüphanesi salı günleri ondan dörde kadar açıktır.
        Yıllık aidat otuz avrodur, öğrenciler yarısını öder.
        Tekneyi 2009 yılında sayman satın aldı.
        Satranç turnuvasını Anna kazandı.
        Bahçeye köpek sokmak yasaktır.
        Mutfağı her cumartesi gönüllüler temizler.""",
        {
            LIBRARY: "Kütüphaneniz ne zaman açık?",
            FEE: "Öğrencilerden ne kadar alınıyor?",
            CHESS: "Satranç turnuvasının galibi kim?",
            DOGS: "Bahçede köpekle dolaşabilir miyim?",
            BOAT: "Teknemizi kim aldı?",
        },
    ),
    "Finnish": (
        """Kerhon kirjasto on auki tiistaisin kymmenestä neljään.
        Vuosimaksu on kolmekymmentä euroa, opiskelijat maksavat puolet.
        Rahastonhoitaja osti veneen vuonna 2009.
        Anna voitti shakkiturnauksen.
        Koiria ei saa tuoda puutarhaan.
        Vapaaehtoiset siivoavat keittiön joka lauantai.""",
        {
            LIBRARY: "Milloin kirjastoon pääsee?",
            FEE: "Paljonko opiskelijoiden vuosimaksu on?",
            CHESS: "Kuka oli shakkiturnauksessa paras?",
            DOGS: "Saako koiran kanssa kävellä puutarhassa?",
            BOAT: "Kuka veneemme osti?",
        },
    ),
    "Hungarian": (
        """A klub könyvtára kedden tíztől négyig tart nyitva.
        Az éves tagdíj harminc euró, a diákok a felét fizetik.
        A csónakot a pénztáros vette 2009-ben.
        A sakkversenyt Anna nyerte meg.
        Kutyát tilos bevinni a kertbe.
        A konyhát önkéntesek takarítják minden szombaton.""",
        {
            LIBRARY: "Mikor van nyitva a könyvtár?",
            FEE: "Mennyit fizet egy diák?",
            CHESS: "Ki lett az első a sakkversenyen?",
            DOGS: "Sétálhatok a kutyámmal a kertben?",
            BOAT: "Ki vette nekünk ezt a csónakot?",
        },
    ),
    "Japanese": (
        """クラブの図書室は火曜日の十時から四時まで開いています。
        年会費は三十ユーロで、学生は半額です。
        会計係が2009年にボートを買いました。
        チェス大会ではアンナが優勝しました。
        庭に犬を連れて入ることはできません。
        ボランティアが毎週土曜日に台所を掃除します。""",
        {
            LIBRARY: "図書室はいつ開いていますか。",
            FEE: "学生の会費はいくらですか。",
            CHESS: "チェス大会の優勝者は誰ですか。",
            DOGS: "犬と庭を歩いてもいいですか。",
            BOAT: "ボートは誰が買ったのですか。",
        },
    ),
    "Chinese": (
        """俱乐部的图书室每周二十点到四点开放。
        年费是三十欧元，学生减半。
        司库在2009年买了那条船。
        安娜赢得了国际象棋比赛。
        花园里不准带狗。
        志愿者每周六打扫厨房。""",
        {
            LIBRARY: "图书室什么时候开门？",
            FEE: "学生要交多少年费？",
            CHESS: "国际象棋比赛谁赢了？",
            DOGS: "我可以带狗去花园吗？",
            BOAT: "船是谁买的？",
        },
    ),
    "Thai": (
        """ห้องสมุดของชมรมเปิดวันอังคารตั้งแต่สิบโมงถึงสี่โมงเย็น
        ค่าสมาชิกรายปีสามสิบยูโร นักเรียนจ่ายครึ่งราคา
        เหรัญญิกซื้อเรือลำนี้ในปี 2009
        แอนนาชนะการแข่งขันหมากรุก
        ห้ามนำสุนัขเข้ามาในสวน
        อาสาสมัครทำความสะอาดห้องครัวทุกวันเสาร์""",
        {
            LIBRARY: "ห้องสมุดเปิดเมื่อไร",
            FEE: "นักเรียนต้องจ่ายเท่าไร",
            CHESS: "ใครชนะการแข่งขันหมากรุก",
            DOGS: "พาสุนัขเดินเล่นในสวนได้ไหม",
            BOAT: "ใครเป็นคนซื้อเรือ",
        },
    ),
    "Swahili": (
        """Maktaba ya klabu hufunguliwa Jumanne kuanzia saa nne hadi saa kumi.
        Ada ya mwaka ni euro thelathini, wanafunzi hulipa nusu.
        Mhazini alinunua mashua mwaka 2009.
        Anna alishinda mashindano ya sataranji.
        Mbwa hawaruhusiwi kuingia bustanini.
        Wafanyakazi wa kujitolea husafisha jikoni kila Jumamosi.""",
        {
            LIBRARY: "Maktaba inafunguliwa lini?",
            FEE: "Mwanafunzi analipa kiasi gani?",
            CHESS: "Nani mshindi wa sataranji?",
            DOGS: "Naweza kutembea na mbwa kwenye bustani?",
            BOAT: "Nani amenunua mashua?",
        },
    ),
}
ASKED = [
    pytest.param(board, question, gold, id=f"{language}-{gold}")
    for language, (board, questions) in BOARDS.items()
    for gold, question in questions.items()
]


def board_pool(board: str) -> tuple[Evidence, ...]:
    lines = board.splitlines()
    return tuple(Evidence(str(i), line.strip(), "text") for i, line in enumerate(lines))


@pytest.mark.parametrize("ranker", ["bm25s", "rank_bm25"])
@pytest.mark.parametrize(("board", "question", "gold"), ASKED)
def test_the_answer_stands_alone_at_the_top(
    board: str, question: str, gold: int, ranker: Ranker
) -> None:
    pool = board_pool(board)
    first, *others = EvidenceIndex(pool, ranker).rank(question, len(pool))
    assert first.evidence.id == str(gold)
    assert all(item.score < first.score for item in others)
